#include "poseidon/caffe_worker.h"

#include <cstdint>
#include <exception>
#include <string>

#include "caffe_adapter/patch/distributed_solver.h"
#include "client/front/model_message.h"
#include "client/front/session_options.h"
#include "client/program_error.h"
#include "client/worker_session.h"
#include "core/error.h"
#include "core/own_process.h"

namespace poseidon {
namespace {

// A program's solver as DistributedSolver sees one.
class ProgramSolver : public PatchedSolver {
 public:
  explicit ProgramSolver(CaffeWorker::Solver& solver)
      : solver_(solver), model_(ModelOf(solver)), passes_(solver.passes()) {
    if (passes_ < 1) {
      throw ConfigError("the solver makes " + std::to_string(passes_) +
                        " passes in an iteration; it must make 1 or more");
    }
    for (const LayerSpec& layer : model_.layers()) CheckRows(layer);
  }

  const ModelSpec& model() const override { return model_; }
  int passes() const override { return passes_; }
  void GetValues(int layer, std::span<float> values) override { solver_.GetValues(layer, values); }
  void SetValues(int layer, std::span<const float> values) override {
    solver_.SetValues(layer, values);
  }
  void GetGradient(int layer, std::span<float> gradient) override {
    solver_.GetGradient(layer, gradient);
  }
  void SetGradient(int layer, std::span<const float> gradient) override {
    solver_.SetGradient(layer, gradient);
  }
  void GetFactors(int layer, std::span<float> u, std::span<float> v) override {
    solver_.GetFactors(layer, u, v);
  }

 private:
  // The optimizer is the solver's, whatever the model says.
  static ModelSpec ModelOf(const CaffeWorker::Solver& solver) {
    Model model = solver.model();
    model.optimizer = {.type = OptimizerType::kMeanGradient};
    return ToModelSpec(model);
  }

  // Each pass fills as much of a factor as the others.
  void CheckRows(const LayerSpec& layer) const {
    const int64_t rows = layer.inner_product().rows();
    if (rows % passes_ == 0) return;
    throw ConfigError("the inner product of layer \"" + layer.name() + "\" has " +
                      std::to_string(rows) + " rows, but the solver makes " +
                      std::to_string(passes_) + " passes in an iteration; `rows` counts those of " +
                      "all passes, which have equally many. Leave inner_product out where they " +
                      "have not");
  }

  CaffeWorker::Solver& solver_;
  const ModelSpec model_;
  const int passes_;
};

// A solver's gradients meet in every iteration, so it takes no steps of its own.
WorkerSessionOptions ToCaffeWorkerOptions(const SessionOptions& options) {
  WorkerSessionOptions session = ToWorkerSessionOptions(options);
  session.trains_locally = false;
  return session;
}

}  // namespace

void CaffeWorker::Solver::GetFactors(int layer, std::span<float> /*u*/, std::span<float> /*v*/) {
  throw ConfigError("the solver's model has an inner_product for layer " + std::to_string(layer) +
                    ", but the solver has no GetFactors");
}

class CaffeWorker::Implementation {
 public:
  Implementation(const SessionOptions& options, Solver& solver)
      : solver_(solver),
        layers_(solver_.model().layers_size()),
        session_(ToCaffeWorkerOptions(options)),
        distributed_(solver_, session_) {}

  ~Implementation() {
    if (ended_) return;
    try {
      session_.Fail(Error(ExitCode::kFailure, "the program ended its CaffeWorker before Finish"));
    } catch (const std::exception&) {  // then the others hear of it by the missing heartbeat
    }
  }

  bool IsOurs() const { return process_.IsThis(); }

  const WorkerSession& session() const { return session_; }

  // Carries out what the program asks for. An error ends this: the others hear the reason.
  template <typename Action>
  void Do(const Action& action) {
    process_.Check("this CaffeWorker");
    ThrowFailure();
    if (ended_) throw Error(ExitCode::kFailure, "the program uses its CaffeWorker after its end");
    try {
      action(distributed_);
    } catch (...) {
      failure_ = std::current_exception();
      ended_ = true;
      session_.Fail(HandledError());
      throw;
    }
  }

  // A mistake ends this, too, as one that the DistributedSolver finds.
  template <typename Action>
  void DoInIteration(const Action& action) {
    Do([&](DistributedSolver& distributed) {
      if (!in_iteration_) Misuse("OnStart comes first");
      action(distributed);
    });
  }

  template <typename Action>
  void DoForLayer(int layer, const Action& action) {
    DoInIteration([&](DistributedSolver& distributed) {
      if (layer < 0 || layer >= layers_) {
        Misuse("there is no layer " + std::to_string(layer) + " in a model with " +
               std::to_string(layers_));
      }
      action(distributed);
    });
  }

  void set_in_iteration(bool in_iteration) { in_iteration_ = in_iteration; }

  void Finish() {
    Do([](DistributedSolver& distributed) { distributed.Finish(); });
    ended_ = true;
  }

 private:
  [[noreturn]] static void Misuse(const std::string& what) {
    throw Error(ExitCode::kFailure, "the program uses its CaffeWorker wrongly: " + what);
  }

  // The program may call again, and hears then why this has ended.
  void ThrowFailure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  const OwnProcess process_;
  ProgramSolver solver_;
  const int layers_;
  WorkerSession session_;
  DistributedSolver distributed_;
  bool in_iteration_ = false;
  bool ended_ = false;
  std::exception_ptr failure_;  // what has ended it
};

CaffeWorker::CaffeWorker(const SessionOptions& options, Solver& solver)
    : implementation_(std::make_unique<Implementation>(options, solver)) {}

// In a forked child the threads behind it are not there, so nothing is destroyed.
CaffeWorker::~CaffeWorker() {
  if (!implementation_->IsOurs()) static_cast<void>(implementation_.release());
}

int CaffeWorker::rank() const { return implementation_->session().rank(); }
int CaffeWorker::workers() const { return implementation_->session().workers(); }

void CaffeWorker::OnStart() {
  implementation_->Do([](DistributedSolver& distributed) { distributed.OnStart(); });
  implementation_->set_in_iteration(true);
}

void CaffeWorker::BeforeForward(int layer) {
  implementation_->DoForLayer(
      layer, [layer](DistributedSolver& distributed) { distributed.BeforeForward(layer); });
}

void CaffeWorker::AfterBackward(int layer) {
  implementation_->DoForLayer(
      layer, [layer](DistributedSolver& distributed) { distributed.AfterBackward(layer); });
}

void CaffeWorker::OnGradientsReady(float loss) {
  implementation_->DoInIteration(
      [loss](DistributedSolver& distributed) { distributed.OnGradientsReady(loss); });
  implementation_->set_in_iteration(false);
}

void CaffeWorker::Finish() { implementation_->Finish(); }

}  // namespace poseidon
