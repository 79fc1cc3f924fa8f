#include "poseidon/session.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "client/front/model_message.h"
#include "client/front/session_options.h"
#include "client/program_error.h"
#include "client/worker_session.h"
#include "core/arithmetic/update_rule.h"
#include "core/own_process.h"
#include "core/parameter_hash.h"
#include "core/steady_now.h"
#include "proto/model_size.h"
#include "proto/update_rule_message.h"
#include "proto/wire.pb.h"

namespace poseidon {
namespace {

enum class Phase { kJoined, kDeclared, kTraining, kEnded };

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kJoined:
      return "before Declare";
    case Phase::kDeclared:
      return "between Declare and Begin";
    case Phase::kTraining:
      return "between Begin and Finish";
    case Phase::kEnded:
      return "after Finish or an error";
  }
  return "never";
}

}  // namespace

// Around WorkerSession: the order of calls, which is the program's to keep, is checked here, so
// that a mistake does not show as another worker's deadline.
class Session::Implementation {
 public:
  explicit Implementation(const SessionOptions& options)
      : session_(ToWorkerSessionOptions(options)) {}

  ~Implementation() {
    if (phase_ == Phase::kEnded) return;
    const std::string what = "the program ended its session before Finish";
    try {
      End(mistake_ ? Error(mistake_->exit_code(), what + ": " + mistake_->what())
                   : Error(ExitCode::kFailure, what));
    } catch (const std::exception&) {  // then the others hear of it by the missing heartbeat
    }
  }

  bool IsOurs() const { return process_.IsThis(); }

  const WorkerSession& session() const { return session_; }

  void Declare(const Model& model, int64_t first_iteration) {
    Expect(Phase::kJoined, "Declare");
    if (first_iteration < 0) Misuse("Declare's first_iteration is negative");
    try {
      model_ = ToModelSpec(model);
    } catch (const ConfigError& error) {
      mistake_ = error;
      throw;
    }
    wire::TrainingInputs inputs;
    inputs.set_first_iteration(first_iteration);
    lacks_optimizer_state_ = first_iteration > 0 && session_.rank() == 0 &&
                             model_.update_rule().type() != "MeanGradient";
    Guarded([&] { session_.Declare(model_, inputs); });
    planned_ = true;
    phase_ = Phase::kDeclared;
  }

  void Begin() {
    Expect(Phase::kDeclared, "Begin");
    Guarded([&] {
      // Who makes the updates gets a state from worker 0 then.
      if (lacks_optimizer_state_) session_.RestoreOptimizerState(std::vector<float>(StateSize()));
      session_.Begin();
    });
    BeginTraining();
  }

  void GoBack() {
    process_.Check(kObject);
    ThrowFailure();
    const bool may = phase_ == Phase::kDeclared || phase_ == Phase::kTraining;
    if (!may || !session_.rewound()) {
      Misuse(std::string("GoBack was called ") + NameOf(phase_) +
             ", its place is after a call that has thrown Rewound");
    }
    Guarded([&] { session_.GoBack(); });
    if (phase_ == Phase::kDeclared) BeginTraining();
    ready_.assign(ready_.size(), false);
    has_groups_ = false;  // those of the iteration that was left are not this one's
  }

  // From Declare on; nobody does before.
  bool SendsStatistics() const { return planned_ && session_.sends_statistics(); }
  bool AwaitsStatistics() const { return planned_ && session_.awaits_statistics(); }

  void SendStatistics(std::span<const float> statistics) {
    Expect(Phase::kTraining, "SendStatistics");
    Guarded([&] { session_.SendStatistics(statistics); });
  }

  std::vector<float> AwaitStatistics(size_t floats) {
    Expect(Phase::kTraining, "AwaitStatistics");
    if (!AwaitsStatistics()) Misuse("AwaitStatistics where none are awaited");
    std::vector<float> statistics;
    Guarded([&] { statistics = session_.AwaitStatistics(floats); });
    session_.TookStatistics();  // the program's next call comes when it has set them
    return statistics;
  }

  std::span<float> values(int layer) {
    ExpectLayer(layer, "values");
    return session_.values(layer);
  }

  Gradient gradient(int layer) {
    ExpectLayer(layer, "gradient");
    const GradientBuffers buffers = session_.gradient(layer);
    return {buffers.dense, buffers.u, buffers.v};
  }

  std::span<float> mean_gradient(int layer) {
    ExpectLayer(layer, "mean_gradient");
    if (model_.update_rule().type() != "MeanGradient") {
      Misuse("mean_gradient is for models whose optimizer is kMeanGradient");
    }
    return session_.optimizer_state(layer);
  }

  void GradientReady(int layer) {
    Expect(Phase::kTraining, "GradientReady");
    ExpectLayer(layer, "GradientReady");
    if (ready_[layer]) {
      Misuse("GradientReady was called twice in iteration " + std::to_string(session_.iteration()) +
             " for layer \"" + model_.layers(layer).name() + "\"");
    }
    // Its memory may be on its way to the others yet.
    if (!session_.exchange().IsFresh(layer, session_.iteration())) {
      Misuse("GradientReady was called in iteration " + std::to_string(session_.iteration()) +
             " before WaitFresh for layer \"" + model_.layers(layer).name() + "\"");
    }
    if (!has_groups_ && IsTorchType(model_.update_rule().type())) {
      Misuse("GradientReady was called before SetGroups");
    }
    ready_[layer] = true;
    Guarded([&] { session_.GradientReady(layer); });
  }

  void SetGroups(std::vector<ParameterGroup> groups) {
    Expect(Phase::kTraining, "SetGroups");
    const std::string& type = model_.update_rule().type();
    if (!IsTorchType(type)) {
      Misuse("SetGroups is for models whose optimizer is kPyTorchSgd or kPyTorchAdamW");
    }
    if (std::find(ready_.begin(), ready_.end(), true) != ready_.end()) {
      Misuse("SetGroups after a GradientReady of the iteration");
    }
    const size_t expected = CountGroups();
    if (groups.size() != expected) {
      Misuse("SetGroups was given " + std::to_string(groups.size()) +
             " groups; the model's blobs belong to " + std::to_string(expected));
    }
    Guarded([&] {
      for (const ParameterGroup& group : groups) Validate(type, group);
      session_.SetGroups(std::move(groups));
    });
    has_groups_ = true;
  }

  void WaitFresh(int layer) {
    Expect(Phase::kTraining, "WaitFresh");
    ExpectLayer(layer, "WaitFresh");
    session_.TookStatistics();  // a program that has any beside the model takes them before
    if (!ready_[layer]) return Guarded([&] { session_.WaitFresh(layer, session_.iteration()); });
    for (const int other : LayersFreshWith(layer)) {
      if (ready_[other]) continue;
      Misuse("WaitFresh was called for layer \"" + model_.layers(layer).name() +
             "\" after its GradientReady, but it becomes fresh together with \"" +
             model_.layers(other).name() + "\", whose gradient is not ready");
    }
    Guarded([&] { session_.WaitFresh(layer, session_.iteration() + 1); });
  }

  std::vector<int> layers_sent_with(int layer) const {
    ExpectLayer(layer, "layers_sent_with");
    return session_.layers_sent_with(layer);
  }

  bool EndIteration(const IterationResult& result) {
    Expect(Phase::kTraining, "EndIteration");
    const auto missing = std::find(ready_.begin(), ready_.end(), false);
    if (missing != ready_.end()) {
      const auto layer = static_cast<int>(missing - ready_.begin());
      Misuse("EndIteration of iteration " + std::to_string(session_.iteration()) +
             " before GradientReady of layer \"" + model_.layers(layer).name() + "\"");
    }
    ready_.assign(ready_.size(), false);
    test_accuracy_ = result.test_accuracy ? result.test_accuracy : test_accuracy_;
    test_loss_ = result.test_loss ? result.test_loss : test_loss_;
    bool plan_changes = false;
    Guarded([&] {
      ReportTest(result);
      plan_changes = session_.EndIteration(ProgressOf(result));
      if (plan_changes) session_.ChangePlan();
    });
    return plan_changes;
  }

  void ReportLayerTimes(std::span<const double> forward_ms, std::span<const double> backward_ms) {
    Expect(Phase::kTraining, "ReportLayerTimes");
    wire::LayerTimes times;
    AddTimes(forward_ms, *times.mutable_forward_ms());
    AddTimes(backward_ms, *times.mutable_backward_ms());
    Guarded([&] { session_.ReportLayerTimes(times); });
  }

  void RestoreOptimizerState(std::vector<float> state) {
    Expect(Phase::kDeclared, "RestoreOptimizerState");
    ExpectWorker0("RestoreOptimizerState");
    if (session_.iteration() == 0) {
      Misuse(
          "RestoreOptimizerState in a training that begins with iteration 0, where the optimizer "
          "has no state; give Declare the first_iteration that the state is of");
    }
    ExpectStateSize(state.size());
    lacks_optimizer_state_ = false;
    Guarded([&] { session_.RestoreOptimizerState(std::move(state)); });
  }

  std::vector<float> CollectOptimizerState() {
    Expect(Phase::kTraining, "CollectOptimizerState");
    ExpectWorker0("CollectOptimizerState");
    if (std::find(ready_.begin(), ready_.end(), true) != ready_.end()) {
      Misuse("CollectOptimizerState after a GradientReady of the iteration");
    }
    std::vector<float> state;
    Guarded([&] {
      WaitForAll();
      state = session_.CollectOptimizerState();
    });
    return state;
  }

  void Finish() {
    Expect(Phase::kTraining, "Finish");
    if (std::find(ready_.begin(), ready_.end(), true) != ready_.end()) {
      Misuse("Finish between a GradientReady and EndIteration");
    }
    if (session_.iteration() < model_.iterations()) {
      Misuse("Finish after " + std::to_string(session_.iteration()) + " of " +
             std::to_string(model_.iterations()) + " iterations");
    }
    Guarded([&] {
      WaitForAll();
      session_.Finish(Report());
    });
    phase_ = Phase::kEnded;
  }

  void Fail(const std::string& reason) {
    process_.Check(kObject);
    End(Error(ExitCode::kFailure, reason));
  }

 private:
  void BeginTraining() {
    first_iteration_ = session_.iteration();
    begin_ = SteadyNow();
    ready_.assign(model_.layers_size(), false);
    phase_ = Phase::kTraining;
  }

  [[noreturn]] void Misuse(const std::string& what) const {
    mistake_.emplace(ExitCode::kFailure, "the program uses its session wrongly: " + what);
    throw Error(*mistake_);
  }

  // A program may call from two threads, as one that waits for a device. Whichever calls later
  // hears why the session has ended, too.
  void ThrowFailure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  void Expect(Phase phase, const std::string& call) const {
    process_.Check(kObject);
    ThrowFailure();
    if (phase_ != Phase::kEnded && session_.rewound()) {
      Misuse(call + " was called after Rewound; GoBack is next");
    }
    if (phase_ == phase) return;
    Misuse(call + " was called " + NameOf(phase_) + ", its place is " + NameOf(phase));
  }

  // From Declare on.
  void ExpectLayer(int layer, const std::string& call) const {
    if (!planned_) Misuse(call + " was called " + NameOf(phase_));
    if (layer >= 0 && layer < model_.layers_size()) return;
    Misuse(call + " was called for layer " + std::to_string(layer) + " of a model with " +
           std::to_string(model_.layers_size()) + ", which count from 0");
  }

  void ExpectWorker0(const std::string& call) const {
    if (session_.rank() != 0) Misuse(call + " is worker 0's");
  }

  void AddTimes(std::span<const double> times,
                google::protobuf::RepeatedField<double>& message) const {
    const bool fit = static_cast<int>(times.size()) == model_.layers_size() &&
                     std::ranges::all_of(times, IsDuration);
    if (!fit) {
      Misuse("ReportLayerTimes needs, for each of the model's " +
             std::to_string(model_.layers_size()) + " layers, milliseconds of at least 0");
    }
    message.Add(times.begin(), times.end());
  }

  size_t StateSize() const {
    int64_t floats = 0;
    for (const LayerSpec& layer : model_.layers()) floats += FloatCount(layer);
    return floats * OptimizerStatePerParameter(ToUpdateRule(model_.update_rule()));
  }

  void ExpectStateSize(size_t floats) const {
    if (floats == StateSize()) return;
    Misuse("RestoreOptimizerState was given " + std::to_string(floats) +
           " floats; the state of this model has " + std::to_string(StateSize()));
  }

  // Layers whose gradients have to be ready before the layer has its values for the next iteration.
  std::vector<int> LayersFreshWith(int layer) const {
    if (!session_.exchanges_end_together()) return session_.layers_sent_with(layer);
    std::vector<int> all(model_.layers_size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  size_t CountGroups() const {
    int count = 0;
    for (const LayerSpec& layer : model_.layers()) {
      for (const BlobSpec& blob : layer.blobs()) count = std::max(count, blob.group() + 1);
    }
    return static_cast<size_t>(count);
  }

  // An error ends the session, and the others hear the reason. Rewound does not.
  template <typename Action>
  void Guarded(const Action& action) {
    mistake_.reset();
    try {
      action();
    } catch (const Rewound&) {
      throw;
    } catch (...) {
      failure_ = std::current_exception();
      End(HandledError());
      throw;
    }
  }

  void End(const Error& error) {
    phase_ = Phase::kEnded;
    session_.Fail(error);
  }

  void WaitForAll() {
    for (int layer = 0; layer < model_.layers_size(); ++layer) session_.WaitFresh(layer);
  }

  wire::Progress ProgressOf(const IterationResult& result) const {
    wire::Progress progress;
    if (result.loss) progress.set_loss(*result.loss);
    progress.set_images(model_.batch());
    progress.set_total_iterations(model_.iterations());
    return progress;
  }

  // A message of its own, as the scheduler counts none with a test's results as an iteration.
  void ReportTest(const IterationResult& result) {
    if (!result.test_accuracy && !result.test_loss) return;
    wire::Progress progress;
    progress.set_iteration(session_.iteration());
    progress.set_total_iterations(model_.iterations());
    if (result.test_accuracy) progress.set_test_accuracy(*result.test_accuracy);
    if (result.test_loss) progress.set_test_loss(*result.test_loss);
    session_.ReportTest(progress);
  }

  wire::WorkerReport Report() const {
    wire::WorkerReport report;
    const int64_t iterations = session_.iteration() - first_iteration_;
    report.set_training_seconds(ToSeconds(SteadyNow() - begin_));
    report.set_iterations(iterations);
    report.set_images(iterations * model_.batch());
    ParameterHash hash;
    for (int layer = 0; layer < model_.layers_size(); ++layer) hash.Add(session_.values(layer));
    report.set_parameter_hash(hash.ToString());
    if (test_accuracy_) report.set_test_accuracy(*test_accuracy_);
    if (test_loss_) report.set_test_loss(*test_loss_);
    return report;
  }

  static constexpr const char* kObject = "this session";

  const OwnProcess process_;
  WorkerSession session_;
  ModelSpec model_;
  Phase phase_ = Phase::kJoined;
  std::exception_ptr failure_;          // what has ended the session
  bool planned_ = false;                // Declare has succeeded; without a plan there is no memory
  bool lacks_optimizer_state_ = false;  // training goes on from an iteration; nobody has given it
  int64_t first_iteration_ = 0;
  Time begin_{};
  bool has_groups_ = false;             // SetGroups was called since Begin or GoBack
  std::vector<bool> ready_;             // by layer: its gradient of this iteration
  std::optional<float> test_accuracy_;  // the last test's
  std::optional<float> test_loss_;
  mutable std::optional<Error> mistake_;  // of the last call, where it made one
};

Session::Session(const SessionOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}

// In a forked child the threads behind it are not there, so nothing is destroyed.
Session::~Session() {
  if (!implementation_->IsOurs()) static_cast<void>(implementation_.release());
}

int Session::rank() const { return implementation_->session().rank(); }
int Session::workers() const { return implementation_->session().workers(); }
int64_t Session::iteration() const { return implementation_->session().iteration(); }

void Session::Declare(const Model& model, int64_t first_iteration) {
  implementation_->Declare(model, first_iteration);
}
void Session::Begin() { implementation_->Begin(); }

std::span<float> Session::values(int layer) { return implementation_->values(layer); }
Session::Gradient Session::gradient(int layer) { return implementation_->gradient(layer); }
std::span<float> Session::mean_gradient(int layer) { return implementation_->mean_gradient(layer); }

void Session::SetGroups(std::vector<ParameterGroup> groups) {
  implementation_->SetGroups(std::move(groups));
}
void Session::GradientReady(int layer) { implementation_->GradientReady(layer); }
void Session::WaitFresh(int layer) { implementation_->WaitFresh(layer); }
std::vector<int> Session::layers_sent_with(int layer) const {
  return implementation_->layers_sent_with(layer);
}
bool Session::EndIteration(const IterationResult& result) {
  return implementation_->EndIteration(result);
}

bool Session::WantsLayerTimes() const { return implementation_->session().wants_layer_times(); }
void Session::ReportLayerTimes(std::span<const double> forward_ms,
                               std::span<const double> backward_ms) {
  implementation_->ReportLayerTimes(forward_ms, backward_ms);
}

void Session::RestoreOptimizerState(std::vector<float> state) {
  implementation_->RestoreOptimizerState(std::move(state));
}
std::vector<float> Session::CollectOptimizerState() {
  return implementation_->CollectOptimizerState();
}

int Session::local_steps() const {
  return implementation_->session().communication().local_steps();
}
int Session::fragments() const { return implementation_->session().communication().fragments(); }
int Session::overlap_steps() const {
  return implementation_->session().communication().overlap_steps();
}

void Session::Finish() { implementation_->Finish(); }

bool Session::recovers() const { return implementation_->session().recovers(); }
void Session::GoBack() { implementation_->GoBack(); }
bool Session::SendsStatistics() const { return implementation_->SendsStatistics(); }
bool Session::AwaitsStatistics() const { return implementation_->AwaitsStatistics(); }
void Session::SendStatistics(std::span<const float> statistics) {
  implementation_->SendStatistics(statistics);
}
std::vector<float> Session::AwaitStatistics(size_t floats) {
  return implementation_->AwaitStatistics(floats);
}

void Session::Fail(const std::string& reason) { implementation_->Fail(reason); }

}  // namespace poseidon
