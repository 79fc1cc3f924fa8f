#include "caffe_adapter/patch/caffe_patch.h"

#include <glog/logging.h>

#include <caffe/caffe.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "caffe_adapter/patch/caffe_solver.h"
#include "caffe_adapter/patch/distributed_solver.h"
#include "caffe_adapter/patch/test_log.h"
#include "client/worker_session.h"
#include "core/error.h"
#include "core/own_process.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/factor_update.h"

namespace poseidon {
namespace {

using Action = std::function<void()>;

class NetCallback : public ::caffe::Net<float>::Callback {
 public:
  explicit NetCallback(std::function<void(int index)> action) : action_(std::move(action)) {}

 private:
  void run(int index) override { action_(index); }

  std::function<void(int index)> action_;
};

class SolverCallback : public ::caffe::Solver<float>::Callback {
 public:
  SolverCallback(Action start, Action gradients_ready)
      : start_(std::move(start)), gradients_ready_(std::move(gradients_ready)) {}

 private:
  void on_start() override { start_(); }
  void on_gradients_ready() override { gradients_ready_(); }

  Action start_;
  Action gradients_ready_;
};

// The result of a net's Accuracy layer, of several the one with the smallest top_k; "" if none.
std::string AccuracyBlob(const ::caffe::Net<float>& net) {
  std::string blob;
  uint32_t top_k = 0;
  for (const auto& layer : net.layers()) {
    const ::caffe::LayerParameter& parameter = layer->layer_param();
    if (parameter.type() != "Accuracy" || parameter.top_size() == 0) continue;
    if (!blob.empty() && parameter.accuracy_param().top_k() >= top_k) continue;
    blob = parameter.top(0);
    top_k = parameter.accuracy_param().top_k();
  }
  return blob;
}

// Listens to what Caffe logs of its tests in the thread that makes this.
class TestListener : public google::LogSink {
 public:
  explicit TestListener(::caffe::Solver<float>& solver)
      : log_(solver.test_nets().empty() ? "" : AccuracyBlob(*solver.test_nets()[0])) {
    google::AddLogSink(this);
  }
  ~TestListener() override { google::RemoveLogSink(this); }
  TestListener(const TestListener&) = delete;
  TestListener& operator=(const TestListener&) = delete;

  std::optional<wire::Progress> Take() { return log_.Take(); }

  using google::LogSink::send;
  void send(google::LogSeverity /*severity*/, const char* /*file*/, const char* /*base*/,
            int /*line*/, const struct ::tm* /*time*/, const char* message,
            size_t length) override {
    if (std::this_thread::get_id() == thread_) log_.Read(std::string(message, length));
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  CaffeTestLog log_;
};

// The GPU that Caffe computes on, and its update with factors; null in CPU mode.
struct CaffesDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<FactorUpdate> factor_update;
};
CaffesDevice MakeCaffesDevice() {
  using ::caffe::Caffe;
  if (Caffe::mode() != Caffe::GPU || FindCudaDevices().count == 0) return {};
  // Caffe does not say which it is, but gets its memory there.
  ::caffe::SyncedMemory memory(sizeof(float));
  const int index = CudaDeviceOf(memory.gpu_data());
  return {MakeCudaDevice(index), MakeCudaFactorUpdate(index)};
}

WorkerSessionOptions ToSessionOptions(const CaffePatchOptions& options, Device* device) {
  WorkerSessionOptions session;
  session.job = options.config.job;
  session.job_fingerprint = options.config.fingerprint;
  session.wanted_rank = options.wanted_rank;
  session.host = options.host;
  session.trace_directory = options.trace_directory;
  if (device != nullptr) session.allocate = PinnedFor(*device);
  session.devices_update = device != nullptr;
  return session;
}

}  // namespace

class CaffePatch::Impl {
 public:
  explicit Impl(CaffePatchOptions options)
      : options_(std::move(options)),
        device_(MakeCaffesDevice()),
        session_(ToSessionOptions(options_, device_.device.get())),
        before_forward_([this](int index) {
          OnLayer(index, [this](int layer) { distributed_->BeforeForward(layer); });
        }),
        after_backward_([this](int index) {
          OnLayer(index, [this](int layer) { distributed_->AfterBackward(layer); });
          if (index == 0) EndPass();
        }),
        solver_callback_([this] { OnStart(); }, [this] { OnGradientsReady(); }) {
    ::caffe::Caffe::set_solver_count(session_.workers());
    ::caffe::Caffe::set_solver_rank(session_.rank());
  }

  bool IsOurs() const { return process_.IsThis(); }

  WorkerSession& session() { return session_; }

  void Attach(::caffe::Solver<float>& solver) {
    CHECK(solver_ == nullptr) << "a worker trains one solver";
    solver_ = &solver;
    tests_.emplace(solver);
    solver.add_callback(&solver_callback_);
    solver.net()->add_before_forward(&before_forward_);
    solver.net()->add_after_backward(&after_backward_);
  }

  void Solve(const char* resume_file) {
    CHECK(solver_ != nullptr);
    CheckProcess();  // Caffe's own Solve may write a snapshot without an iteration
    if (resume_file != nullptr) solver_->Restore(resume_file);
    // Caffe's own Solve would test and write a snapshot.
    if (!started_ && solver_->iter() >= solver_->param().max_iter()) return Finish();
    if (session_.rank() == 0) {
      solver_->Solve(nullptr);
    } else {
      solver_->Step(solver_->param().max_iter() - solver_->iter());
    }
  }

  void Finish() {
    const bool began = distributed_ && distributed_->began();
    // What has failed to begin has said so.
    if (finished_ || solver_ == nullptr || (started_ && !began)) return;
    finished_ = true;
    Guarded([this] {
      // The solver may be gone.
      if (!started_) throw NothingBegun();
      ReportTest();
      tests_.reset();
      distributed_->Finish();
    });
  }

 private:
  // What Caffe has tested since the last call. Not while it logs: messages are sent under its
  // locks.
  void ReportTest() {
    if (std::optional<wire::Progress> test = tests_->Take()) {
      distributed_->ReportTest(*std::move(test));
    }
  }

  // The solver has its first values: of its fillers, of a file, of a snapshot.
  void OnStart() {
    started_ = true;
    Guarded([this] {
      if (!distributed_) {
        adapter_.emplace(*solver_, device_.device.get(), device_.factor_update.get());
        distributed_.emplace(*adapter_, session_);
      }
      distributed_->OnStart();
      ReportTest();
      loss_of_passes_ = 0;
      passes_done_ = 0;
      in_iteration_ = true;
    });
  }

  void OnLayer(int index, const std::function<void(int layer)>& action) {
    // A pass that is not of an iteration: Caffe's for the last display, or the user's own.
    if (!in_iteration_) return;
    const std::optional<int> layer = adapter_->LayerOf(index);
    if (layer) Guarded([&] { action(*layer); });
  }

  // The next pass writes over the losses. Those of the last one can wait until all gradients have
  // left.
  void EndPass() {
    if (in_iteration_ && ++passes_done_ < adapter_->passes()) loss_of_passes_ += adapter_->Loss();
  }

  // The loss is the mean of the passes', as Caffe itself tells it.
  void OnGradientsReady() {
    in_iteration_ = false;
    const auto loss = [this] {
      return (loss_of_passes_ + adapter_->Loss()) / static_cast<float>(adapter_->passes());
    };
    Guarded([this, &loss] { distributed_->OnGradientsReady(loss); });
  }

  // Of a fork's mistake the session hears nothing: its threads are not there, and the training goes
  // on in the process that it belongs to.
  void CheckProcess() const {
    try {
      process_.Check("this solver's part in the job");
    } catch (const Error& error) {
      if (options_.on_error) options_.on_error(error);
      throw;
    }
  }

  // Errors leave Caffe's code as exceptions only where the program can take them.
  void Guarded(const Action& action) {
    CheckProcess();
    try {
      action();
    } catch (const Error& error) {
      session_.Fail(error);
      if (options_.on_error) {
        session_.Stop();  // or the others would not hear of it before the process is gone
        options_.on_error(error);
      }
      throw;
    }
  }

  const OwnProcess process_;
  CaffePatchOptions options_;
  CaffesDevice device_;
  WorkerSession session_;
  ::caffe::Solver<float>* solver_ = nullptr;
  std::optional<CaffeSolver> adapter_;
  std::optional<DistributedSolver> distributed_;
  std::optional<TestListener> tests_;
  NetCallback before_forward_;
  NetCallback after_backward_;
  SolverCallback solver_callback_;
  bool started_ = false;  // its first iteration, or has tried to
  bool in_iteration_ = false;
  int passes_done_ = 0;       // of this iteration
  float loss_of_passes_ = 0;  // their sum, without that of the last one
  bool finished_ = false;
};

CaffePatch::CaffePatch(CaffePatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

// In a forked child the threads behind it are not there, so nothing is destroyed.
CaffePatch::~CaffePatch() {
  if (!impl_->IsOurs()) static_cast<void>(impl_.release());
}

int CaffePatch::rank() const { return impl_->session().rank(); }

int CaffePatch::workers() const { return impl_->session().workers(); }

void CaffePatch::Attach(::caffe::Solver<float>& solver) { impl_->Attach(solver); }

void CaffePatch::Solve(const char* resume_file) { impl_->Solve(resume_file); }

void CaffePatch::Finish() { impl_->Finish(); }

std::unique_ptr<CaffePatch> PatchSolver(::caffe::Solver<float>& solver, CaffePatchOptions options) {
  auto worker = std::make_unique<CaffePatch>(std::move(options));
  ::caffe::NetParameter values;
  solver.net()->ToProto(&values);
  // As the solver did when it was made, but for this worker: else all drop out the same numbers,
  // and shuffle alike.
  if (const auto seed = solver.param().random_seed(); seed >= 0) {
    ::caffe::Caffe::set_random_seed(static_cast<unsigned int>(seed + worker->rank()));
  }
  solver.InitTrainNet();
  solver.net()->CopyTrainedLayersFrom(values);
  worker->Attach(solver);
  return worker;
}

}  // namespace poseidon
