#include "caffe_adapter/patch/distributed_solver.h"

#include <algorithm>
#include <string>

#include "core/parameter_hash.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

// The part of a factor that pass `pass` of `passes` fills: its rows.
std::span<float> PartOfPass(std::span<float> factor, int pass, int passes) {
  const size_t part = factor.size() / static_cast<size_t>(passes);
  return factor.subspan(static_cast<size_t>(pass) * part, part);
}

}  // namespace

DistributedSolver::DistributedSolver(PatchedSolver& solver, WorkerSession& session)
    : solver_(solver),
      session_(session),
      model_(solver.model()),
      passes_done_(model_.layers_size()),
      has_values_(model_.layers_size()) {
  model_.mutable_update_rule()->Clear();
  model_.mutable_update_rule()->set_type("MeanGradient");
}

void DistributedSolver::OnStart() {
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    if (passes_done_[layer] < solver_.passes()) continue;
    Misuse("OnStart", layer, "after its last AfterBackward; OnGradientsReady comes first");
  }
  if (!began_) Begin();
  std::fill(passes_done_.begin(), passes_done_.end(), 0);
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    solver_.NeedGradient(layer, !session_.gradient(layer).dense.empty());
  }
}

void DistributedSolver::Begin() {
  session_.Declare(model_);
  if (session_.rank() == 0) {
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      solver_.GetValues(layer, session_.values(layer));
    }
  }
  session_.Begin();
  if (SolverOnDevice* const on_device = solver_.on_device()) {
    staged_ = std::make_unique<StagedGradients>(*on_device, session_, model_, solver_.passes());
  }
  for (int layer = 0; layer < model_.layers_size(); ++layer) PlaceGradient(layer);
  began_ = true;
  begin_ = SteadyNow();
}

void DistributedSolver::PlaceGradient(int layer) {
  if (!staged_) solver_.PlaceGradient(layer, session_.optimizer_state(layer));
}

void DistributedSolver::BeforeForward(int layer) {
  if (has_values_[layer]) return;
  session_.WaitFresh(layer);
  if (session_.rank() != 0) solver_.SetValues(layer, session_.values(layer));
  if (staged_) staged_->Prepare(layer);
  has_values_[layer] = true;
}

void DistributedSolver::AfterBackward(int layer) {
  if (!has_values_[layer]) Misuse("AfterBackward", layer, "before its BeforeForward");
  if (passes_done_[layer] == solver_.passes()) {
    Misuse("AfterBackward", layer,
           "after all of its passes, of which the solver makes " +
               std::to_string(solver_.passes()) + " in an iteration");
  }
  const int pass = passes_done_[layer]++;
  if (staged_) return staged_->AfterBackward(layer, pass);
  const bool last = pass + 1 == solver_.passes();
  const GradientBuffers buffers = session_.gradient(layer);
  if (buffers.dense.empty()) {
    solver_.GetFactors(layer, PartOfPass(buffers.u, pass, solver_.passes()),
                       PartOfPass(buffers.v, pass, solver_.passes()));
  } else if (last) {
    solver_.GetGradient(layer, buffers.dense);
  }
  if (last) session_.GradientReady(layer);
}

void DistributedSolver::OnGradientsReady(const std::function<float()>& loss) {
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    if (passes_done_[layer] == solver_.passes()) continue;
    Misuse("OnGradientsReady", layer,
           "after " + std::to_string(passes_done_[layer]) + " of its " +
               std::to_string(solver_.passes()) + " AfterBackward");
  }
  std::ranges::fill(passes_done_, 0);
  if (staged_) staged_->EndIteration();
  wire::Progress progress;
  progress.set_loss(loss());
  progress.set_images(model_.batch());
  progress.set_total_iterations(model_.iterations());
  const bool plan_changes = session_.EndIteration(std::move(progress));
  if (plan_changes) ChangePlan();
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    solver_.NeedGradient(layer, true);
    if (staged_) {
      staged_->WaitFresh(layer);
      continue;
    }
    session_.WaitFresh(layer);
    if (plan_changes) PlaceGradient(layer);
    solver_.SetGradient(layer, session_.optimizer_state(layer));
  }
  ++iterations_;
}

void DistributedSolver::ChangePlan() {
  if (staged_) staged_->SyncToHost();
  session_.ChangePlan();
  if (staged_) staged_->PlanChanged();
}

void DistributedSolver::Misuse(const std::string& call, int layer, const std::string& when) const {
  throw Error(ExitCode::kFailure, "the solver's calls are out of order: in iteration " +
                                      std::to_string(session_.iteration()) + " " + call +
                                      " was called for layer \"" + model_.layers(layer).name() +
                                      "\" " + when);
}

void DistributedSolver::ReportTest(wire::Progress test) {
  test.set_total_iterations(model_.iterations());
  session_.ReportTest(test);
  last_test_ = std::move(test);
}

ConfigError NothingBegun() {
  return ConfigError(
      "the training ended before its first iteration: nothing is left to do, as where the snapshot "
      "that it goes on from is of the solver's max_iter; raise that, or leave the snapshot out");
}

void DistributedSolver::Finish() {
  if (!began_) throw NothingBegun();
  if (iterations_ < model_.iterations()) {
    throw Error(ExitCode::kFailure, "stopped after " + std::to_string(iterations_) + " of " +
                                        std::to_string(model_.iterations()) + " iterations");
  }
  wire::WorkerReport report;
  report.set_training_seconds(ToSeconds(SteadyNow() - begin_));
  report.set_iterations(iterations_);
  report.set_images(iterations_ * model_.batch());
  report.set_parameter_hash(HashOfValues());
  if (last_test_.has_test_accuracy()) report.set_test_accuracy(last_test_.test_accuracy());
  if (last_test_.has_test_loss()) report.set_test_loss(last_test_.test_loss());
  session_.Finish(report);
}

std::string DistributedSolver::HashOfValues() {
  ParameterHash hash;
  std::vector<float> values;
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    values.resize(session_.values(layer).size());
    solver_.GetValues(layer, values);
    hash.Add(values);
  }
  return hash.ToString();
}

}  // namespace poseidon
