#include "worker/trainer.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/error.h"
#include "core/message_limit.h"
#include "core/parameter_hash.h"
#include "core/steady_now.h"
#include "proto/plan_members.h"
#include "proto/rate_advice.h"
#include "worker/loss_check.h"

namespace poseidon {
namespace {

// Of what is exchanged beside the model.
constexpr size_t kMostFloatsBesideModel = kMostBodyBytes / sizeof(float);

size_t UntrainedFloats(const NetValues& values) {
  size_t floats = 0;
  for (const auto& layer : values) {
    for (const std::vector<float>& blob : layer) floats += blob.size();
  }
  return floats;
}

void AppendUntrained(const NetValues& values, std::vector<float>& floats) {
  for (const auto& layer : values) {
    for (const std::vector<float>& blob : layer) {
      floats.insert(floats.end(), blob.begin(), blob.end());
    }
  }
}

// As AppendUntrained has put them; the blobs keep their sizes.
void AssignUntrained(std::span<const float> floats, NetValues& values) {
  for (auto& layer : values) {
    for (std::vector<float>& blob : layer) {
      std::ranges::copy(floats.first(blob.size()), blob.begin());
      floats = floats.subspan(blob.size());
    }
  }
}

}  // namespace

bool TrainerOptions::TestIsDue(int64_t iteration) const {
  if (test_interval <= 0 || iteration % test_interval != 0) return false;
  // What a training begins with that goes on from a snapshot is no initialization.
  return iteration > 0 || test_initialization;
}

Trainer::Trainer(WorkerNet& net, WorkerSession& session, const ModelSpec& model,
                 const TrainerOptions& options)
    : net_(net),
      session_(session),
      model_(model),
      options_(options),
      snapshots_(options.snapshots),
      first_iteration_(session.iteration()),
      // Where it takes a lost one's place, that of the job is not known, but is not after this;
      // what is due then the lost one may not have done.
      begins_at_(session.plan().holders().empty() ? first_iteration_ : 0),
      counted_passes_(options.passes.PassesBefore(first_iteration_)) {
  const NetDescription* const described = net_.engine().net();
  if (session_.leads() && described != nullptr) {
    snapshots_.CheckWritable(*described, model);
    if (const auto news = snapshots_.WhatCaffePassesOver(*described)) Tell(*news);
  }
  SetFirstValues();
  TakeShare();
  if (session_.wants_layer_times()) {
    timer_ = MakeTimer();
    net_.MeasureSteps(true);
  }
}

LayerTimer Trainer::MakeTimer() const {
  const Engine& engine = net_.engine();
  std::vector<std::optional<int>> layers;
  for (int step = 0; step < engine.steps(); ++step) layers.push_back(engine.layer_of_step(step));
  return LayerTimer(layers);
}

void Trainer::SetFirstValues() {
  // Who takes a lost worker's place gets the values from the others.
  const bool leads = session_.leads() && session_.plan().holders().empty();
  Engine& engine = net_.engine();
  if (leads) engine.FillParameters();
  // Whoever leads after a loss tests with them.
  for (const std::string& path : options_.weights) engine.ReadTestLayers(path);
  // What the model lacks never changes and is not sent, so every worker reads it for itself; but
  // who comes later is sent it, and its own files may be gone or damaged.
  if (engine.net() != nullptr && (leads || HasParametersBesideModel())) {
    CheckSameStart();
    NetValues values = engine.Values();
    if (options_.from) {
      // It has all values, and the files that its training began with may be gone.
      ReadSnapshotValues(*options_.from, *engine.net(), values);
    } else if (!GetsValuesBesideModel()) {
      for (const std::string& path : options_.weights) {
        const CopiedLayers copied = ReadCaffemodel(path, *engine.net(), values);
        if (leads) Tell("starting from the values of " + path + ": " + ToString(copied));
      }
    }
    net_.SetValues(values);
    if (leads && options_.from) RestoreOptimizerState();
  }
  if (leads) net_.PublishValues();
}

bool Trainer::HasParametersBesideModel() const {
  int64_t parameters = 0;
  for (const LayerDescription& layer : net_.engine().net()->layers)
    parameters += layer.owned_floats();
  return parameters != ParameterCount(model_);
}

bool Trainer::GetsValuesBesideModel() const {
  if (session_.plan().holders().empty()) return false;
  const size_t untrained = UntrainedFloats(net_.engine().UntrainedValues());
  return net_.statistics().floats() + untrained <= kMostFloatsBesideModel;
}

void Trainer::CheckSameStart() const {
  // Who takes a lost worker's place begins where the others are, and gets from them also what is
  // not trained.
  if (!session_.plan().holders().empty()) return;
  const int64_t own = options_.from ? options_.from->state.iteration : 0;
  if (own == first_iteration_) return;
  throw DataError("worker " + std::to_string(session_.rank()) +
                  " needs the snapshot of iteration " + std::to_string(first_iteration_) +
                  ", from which worker 0 goes on, for the layers that are not trained, but found " +
                  (options_.from ? options_.from->path : "none") +
                  "; put the files on every worker's machine");
}

void Trainer::RestoreOptimizerState() {
  session_.RestoreOptimizerState(
      FromHistory(options_.from->path, *net_.engine().net(), model_, options_.from->state.history));
  Tell("going on from iteration " + std::to_string(options_.from->state.iteration) + ", " +
       options_.from->path + ", with the values of " + options_.from->model);
}

void Trainer::Tell(const std::string& news) {
  LOG(INFO) << news;
  session_.Notify(news);
}

wire::WorkerReport Trainer::Train() {
  for (bool begun = false;; begun = true) {
    try {
      if (begun) {
        GoBack();
      } else {
        session_.Begin();
      }
      if (begin_ == Time{}) begin_ = SteadyNow();
      return TrainToEnd();
    } catch (const Rewound&) {
      LOG(INFO) << "stops: a node is lost, or the workers change";
    }
  }
}

void Trainer::GoBack() {
  net_.Abandon();
  session_.GoBack();
  net_.statistics().GoBack(session_.iteration());
  snapshot_.GoBack(session_.iteration());
  tested_.GoBack(session_.iteration());
  TakePlan();
  LOG(INFO) << "goes on from iteration " << session_.iteration();
}

void Trainer::TakePlan() {
  net_.PlanChanged();
  if (timer_) timer_ = MakeTimer();  // libraries have to find their memory again
  TakeShare();
}

void Trainer::TakeShare() {
  const Plan& plan = session_.plan();
  if (plan.tenures().empty() && plan.parts().empty()) return;
  CountImages();
  DataShare share{.place = PlaceOfWorker(plan, session_.rank()),
                  .tenures = {},
                  .parts = {plan.parts().begin(), plan.parts().end()}};
  for (const Tenure& tenure : plan.tenures()) {
    const int64_t start = options_.passes.PassesBefore(tenure.start_iteration());
    share.tenures.push_back({start, tenure.workers()});
  }
  if (share.tenures.empty()) share.tenures.push_back({0, plan.workers()});
  net_.SetShare(share);
}

void Trainer::CountImages() {
  const int64_t passes = options_.passes.PassesBefore(session_.iteration());
  images_ += (passes - counted_passes_) * net_.batch();
  counted_passes_ = passes;
}

void Trainer::ExchangeValuesBesideModel() {
  const bool sends = session_.sends_statistics();
  if (!sends && !session_.awaits_statistics()) return;
  KeptStatistics& statistics = net_.statistics();
  const size_t kept = statistics.floats();
  // Before other values are read: it waits for all that goes back on devices.
  std::vector<float> copied = sends ? statistics.Copy() : std::vector<float>();
  NetValues untrained = net_.engine().UntrainedValues();
  size_t floats = kept + UntrainedFloats(untrained);
  // More than a message takes stays what every worker reads for itself.
  if (floats > kMostFloatsBesideModel) {
    untrained.clear();
    floats = kept;
  }
  if (floats > kMostFloatsBesideModel) {
    LOG(WARNING) << "statistics of " << floats
                 << " numbers are more than a message takes; who is "
                    "new to the job begins with those that it has read";
    return;
  }
  if (floats == 0) return;
  if (sends) {
    AppendUntrained(untrained, copied);
    return session_.SendStatistics(copied);
  }
  const std::vector<float> values = session_.AwaitStatistics(floats);
  statistics.Set(std::span(values).first(kept));
  if (kept > 0) LOG(INFO) << "has another worker's statistics, of " << kept << " numbers";
  if (floats == kept) return;
  AssignUntrained(std::span(values).subspan(kept), untrained);
  net_.SetValues(untrained);
  LOG(INFO) << "has another worker's values of what is not trained, " << floats - kept
            << " numbers";
}

wire::WorkerReport Trainer::TrainToEnd() {
  ExchangeValuesBesideModel();
  session_.TookStatistics();
  while (session_.iteration() < options_.max_iter && !session_.stops()) RunIteration();
  wire::WorkerReport report = Report();
  session_.Finish(report);
  return report;
}

wire::WorkerReport Trainer::Report() {
  net_.statistics().Keep(session_.iteration());
  WaitForAllLayers();
  net_.Synchronize();  // the last values' way to devices is part of training
  const Duration training = SteadyNow() - begin_ - testing_;
  net_.SyncToHost();
  CheckParameters();

  wire::WorkerReport report;
  report.set_training_seconds(ToSeconds(training));
  report.set_iterations(session_.iteration() - first_iteration_);
  CountImages();
  report.set_images(images_);
  report.set_parameter_hash(HashOfValues());
  if (session_.leads()) {
    const bool due =
        session_.iteration() > begins_at_ && snapshots_.IsDueAtEnd(session_.iteration());
    if (due || SnapshotIsWanted()) WriteSnapshot(due);
    // As in Caffe, who is in a hurry is not kept by a test.
    if (!session_.stops()) Test();
    if (last_test_.accuracy) report.set_test_accuracy(*last_test_.accuracy);
    if (last_test_.loss) report.set_test_loss(*last_test_.loss);
  }
  return report;
}

void Trainer::RunIteration() {
  const int64_t iteration = session_.iteration();
  net_.statistics().Keep(iteration);
  const bool first = iteration == begins_at_;
  const Duration testing = testing_;
  loading_ = {};
  const bool due = snapshots_.IsDue(iteration);
  if (session_.leads() && !first && (due || SnapshotIsWanted())) {
    WaitForAllLayers();
    WriteSnapshot(due);
  }
  if (session_.leads() && options_.TestIsDue(iteration)) {
    WaitForAllLayers();
    Test();
  }
  const Duration beside = testing_ - testing;
  const int64_t passes = options_.passes.PassesOf(iteration);
  float loss = 0;
  for (int64_t pass = 0; pass < passes; ++pass) {
    loss += RunPass({pass, passes}) / static_cast<float>(passes);
  }
  Display(loss);
  wire::Progress progress;
  progress.set_loss(loss);
  progress.set_images(passes * net_.batch());
  progress.set_total_iterations(options_.max_iter);
  progress.set_data_seconds(ToSeconds(loading_));
  progress.set_beside_seconds(ToSeconds(beside));
  if (timer_) {
    if (const std::optional<wire::LayerTimes> times = timer_->EndIteration()) {
      session_.ReportLayerTimes(*times);
      timer_.reset();
      net_.MeasureSteps(false);
    }
  }
  if (!session_.EndIteration(std::move(progress))) return;
  WaitForAllLayers();  // with the updates that are the worker's own to do
  net_.SyncToHost();
  session_.ChangePlan();
  TakePlan();
}

float Trainer::RunPass(const PassOfIteration& pass) {
  const Time begin = SteadyNow();
  net_.LoadBatch(options_.passes.PassesBefore(session_.iteration()) + pass.index);
  loading_ += SteadyNow() - begin;
  // The first layer can't start earlier.
  Measure(&LayerTimer::AddForward, 0, begin);
  Forward();
  if (!net_.runs_ahead()) {
    const float loss = CheckedLoss();
    Backward(pass);
    return loss;
  }
  Backward(pass);
  // Gradients leave while the net computes. Whoever waits for the loss lets none go.
  if (pass.last()) net_.EndIteration();
  return CheckedLoss();
}

float Trainer::CheckedLoss() {
  const float loss = net_.Loss();
  if (std::isfinite(loss)) return loss;
  ThrowLossNotFinite(session_.rank(), session_.iteration(), loss, net_.FirstNotFinite(), Advice());
}

std::string Trainer::Advice() const {
  return DivergenceAdvice(session_.plan(), model_.update_rule());
}

// A loss tells of the parameters that it was computed with, not of those that its gradient makes.
void Trainer::CheckParameters() const {
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    const std::span<const float> values = session_.values(layer);
    if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
      continue;
    }
    throw Error(ExitCode::kFailure, "in iteration " + std::to_string(session_.iteration()) +
                                        " parameters of layer \"" + model_.layers(layer).name() +
                                        "\" are no numbers any more; no snapshot of them is "
                                        "written; " +
                                        Advice());
  }
}

void Trainer::Display(float loss) {
  if (!session_.leads() || options_.display <= 0) return;
  // Of this worker's own samples, as the log of one that trains alone.
  const Plan& plan = session_.plan();
  const double share = ShareOfSamples({plan.parts().begin(), plan.parts().end()},
                                      static_cast<size_t>(PlaceOfWorker(plan, session_.rank())));
  recent_losses_.push_back(static_cast<float>(loss / share));
  if (static_cast<int64_t>(recent_losses_.size()) > options_.average_loss) {
    recent_losses_.pop_front();
  }
  if (session_.iteration() % options_.display != 0) return;
  const double sum = std::accumulate(recent_losses_.begin(), recent_losses_.end(), 0.0);
  LOG(INFO) << "Iteration " << session_.iteration()
            << ", loss = " << sum / static_cast<double>(recent_losses_.size());
}

void Trainer::Measure(void (LayerTimer::*add)(int step, Duration duration), int step, Time begin) {
  if (!timer_) return;
  net_.Synchronize();
  ((*timer_).*add)(step, SteadyNow() - begin);
}

void Trainer::Forward() {
  const Engine& engine = net_.engine();
  for (int step = 0; step < engine.steps(); ++step) {
    if (const auto layer = engine.layer_of_step(step)) {
      net_.WaitFresh(*layer);
      if (timer_) net_.Synchronize();  // copies on the way to it are no time of the layer's
    }
    const Time begin = SteadyNow();
    net_.Forward(step);
    Measure(&LayerTimer::AddForward, step, begin);
  }
}

void Trainer::Backward(const PassOfIteration& pass) {
  const Engine& engine = net_.engine();
  for (int step = engine.steps() - 1; step >= 0; --step) {
    const Time begin = SteadyNow();
    net_.Backward(step, pass);
    Measure(&LayerTimer::AddBackward, step, begin);
    const auto layer = engine.layer_of_step(step);
    if (layer && pass.last()) net_.GradientReady(*layer);
  }
}

bool Trainer::SnapshotIsWanted() {
  if (!session_.snapshot_is_wanted()) return false;
  const Time begin = SteadyNow();
  const std::optional<std::string> why_not =
      snapshots_.CanWrite() ? snapshots_.WhyNotWritable(*net_.engine().net(), model_)
                            : "there is no snapshot_prefix";
  testing_ += SteadyNow() - begin;  // it may have waited for another job's end
  if (why_not) RefuseSnapshot(*why_not);
  return !why_not;
}

void Trainer::RefuseSnapshot(const std::string& why_not) {
  session_.AnswerSnapshotRequest();
  Tell("no snapshot is written: " + why_not);
}

void Trainer::WriteSnapshot(bool due) {
  if (snapshot_.is(session_.iteration())) return session_.AnswerSnapshotRequest();
  const Time begin = SteadyNow();
  net_.Synchronize();
  net_.SyncToHost();
  CheckParameters();
  std::vector<float> optimizer_state = session_.CollectOptimizerState();
  session_.Note(Activity::kSnapshot);
  std::string path;
  try {
    path = snapshots_.Write(net_.engine(), model_, session_.iteration(), optimizer_state);
  } catch (const Error& error) {
    if (due) throw;
    RefuseSnapshot(error.what());
  }
  session_.Note(Activity::kComputing);
  testing_ += SteadyNow() - begin;
  if (path.empty()) return;
  snapshot_.Set(session_.iteration());
  session_.AnswerSnapshotRequest();  // not before: the job may have gone back meanwhile
  Tell("wrote the snapshot of iteration " + std::to_string(session_.iteration()) + ", " + path);
  TracePhase("snapshot", begin);
}

void Trainer::TracePhase(const char* name, Time begin) {
  if (session_.trace() == nullptr) return;
  session_.trace()->Add({name, "", "compute", session_.iteration(), begin, SteadyNow()});
}

void Trainer::WaitForAllLayers() {
  for (int layer = 0; layer < model_.layers_size(); ++layer) net_.WaitFresh(layer);
}

void Trainer::Test() {
  if (tested_.is(session_.iteration())) return;
  tested_.Set(session_.iteration());
  const Time begin = SteadyNow();
  session_.Note(Activity::kTesting);
  last_test_ = net_.Test();
  session_.Note(Activity::kComputing);
  testing_ += SteadyNow() - begin;
  if (!last_test_.outputs.empty()) TracePhase("test", begin);
  for (const TestOutput& output : last_test_.outputs) {
    for (const float value : output.values) {
      LOG(INFO) << "Iteration " << session_.iteration() << ", test net " << output.net << ": "
                << output.blob << " = " << value;
    }
  }
  if (!last_test_.accuracy && !last_test_.loss) return;
  wire::Progress progress;
  progress.set_iteration(session_.iteration());
  progress.set_total_iterations(options_.max_iter);
  if (last_test_.accuracy) progress.set_test_accuracy(*last_test_.accuracy);
  if (last_test_.loss) progress.set_test_loss(*last_test_.loss);
  session_.ReportTest(progress);
}

std::string Trainer::HashOfValues() const {
  ParameterHash hash;
  for (int layer = 0; layer < model_.layers_size(); ++layer) hash.Add(session_.values(layer));
  return hash.ToString();
}

}  // namespace poseidon
