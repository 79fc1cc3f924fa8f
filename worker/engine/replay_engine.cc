#include "worker/engine/replay_engine.h"

#include <algorithm>
#include <thread>

#include "core/random.h"
#include "core/time.h"

namespace poseidon {
namespace {

// Every so many floats (256 KiB) one changes in each iteration, so that each KV pair of the default
// 2 MB has eight that show whether it is of the right iteration.
constexpr size_t kChangeInterval = 65536;

// Gradients and parameters are within +- kMagnitude: thousands of updates stay far from overflow.
constexpr float kMagnitude = 1e-3F;

float ToValue(uint64_t random) {
  // The upper 24 bits, a float's precision, to [-1, 1).
  return kMagnitude * (static_cast<float>(random >> 40U) * 0x1p-23F - 1);
}

void FillValues(uint64_t seed, std::span<float> values) {
  Random random(seed);
  for (float& value : values) value = ToValue(random.Next());
}

}  // namespace

ReplayEngine::ReplayEngine(Replay replay, int rank, uint64_t seed, double compute_factor,
                           const ComputeDisturbance& disturbance)
    : replay_(std::move(replay)),
      rank_(static_cast<uint64_t>(rank)),
      seed_(seed),
      compute_factor_(compute_factor),
      disturbance_(disturbance),
      batch_(replay_.batch()) {
  ReplayModel described = DescribeReplay(replay_);
  model_ = std::move(described.model);
  layer_of_step_ = std::move(described.layer_of_step);
  parameters_.resize(model_.layers_size());
  written_.resize(model_.layers_size());
}

void ReplayEngine::BindParameters(int layer, std::span<float> values) {
  parameters_.at(layer) = values;
}

void ReplayEngine::FillParameters() {
  for (int i = 0; i < model_.layers_size(); ++i) {
    FillValues(DeriveSeed(seed_, model_.layers(i).name()), parameters_[i]);
  }
}

void ReplayEngine::SetShare(const DataShare& share) {
  if (!share.parts.empty()) batch_ = share.parts.at(share.place);
}

void ReplayEngine::LoadBatch(int64_t iteration) {
  iteration_ = static_cast<uint64_t>(iteration);
  disturbance_.Begin(static_cast<int>(rank_), iteration);
  step_end_ = returned_ = Clock::now();
}

void ReplayEngine::Forward(int step) {
  StartStep(step, replay_.layers(step).forward_ms());
  FinishStep();
}

void ReplayEngine::Backward(int step, const GradientBuffers& target) {
  StartStep(2 * steps() - 1 - step, replay_.layers(step).backward_ms());
  if (layer_of_step_[step]) WriteGradient(*layer_of_step_[step], target);
  FinishStep();
}

void ReplayEngine::WriteGradient(int layer, const GradientBuffers& target) {
  const uint64_t seed = DeriveSeed(DeriveSeed(rank_, model_.layers(layer).name()), 0);
  WrittenTargets& written = written_[layer];
  WriteValues(seed, target.dense, written.dense);
  WriteValues(seed + 1, target.u, written.u);
  WriteValues(seed + 2, target.v, written.v);
}

void ReplayEngine::WriteValues(uint64_t seed, std::span<float> values, Written& written) const {
  if (values.empty()) return;
  if (std::find(written.begin(), written.end(), values.data()) == written.end()) {
    FillValues(seed, values);
    written = {written[1], values.data()};
  }
  Random random(DeriveSeed(seed, iteration_));
  for (size_t i = 0; i < values.size(); i += kChangeInterval) values[i] = ToValue(random.Next());
}

void ReplayEngine::StartStep(int pass, double milliseconds) {
  const double part = static_cast<double>(batch_) / replay_.batch();
  const Clock::duration spent_by_caller = Clock::now() - returned_;
  constexpr double kMillisecond = 1e-3;
  const Duration planned = Seconds(kMillisecond * compute_factor_ * part * milliseconds);
  step_end_ += spent_by_caller + disturbance_.Of(pass, planned);
}

void ReplayEngine::FinishStep() {
  std::this_thread::sleep_until(step_end_);
  returned_ = Clock::now();
}

}  // namespace poseidon
