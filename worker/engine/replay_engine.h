// ReplayEngine: recorded times instead of arithmetic, for experiments with the communication of
// networks that this machine could not compute.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "proto/job.pb.h"
#include "proto/replay_model.h"
#include "worker/engine/engine.h"

namespace poseidon {

// Sleeps the recorded times and writes gradients (or factors) of the recorded sizes.
//
// Times: a step ends its recorded time after the end of the step before, plus whatever time the
// caller spent in between (waiting for parameters, handing gradients on). An overslept step is made
// up for by the next, so that an iteration lasts the sum of its recorded times and of the caller's.
//
// Gradients are small numbers that depend on rank, layer, index and iteration only. They are
// written whole the first time that their memory is the target; from then on only one value in
// 65,536 changes in an iteration, since writing hundreds of megabytes would take longer than the
// backward pass that is replayed. So a layer may have two targets in turn, and nobody else may
// write to their memory.
class ReplayEngine : public Engine {
 public:
  // `rank` makes the gradients of the workers differ; `seed` decides the initial parameters. Steps
  // last `compute_factor` times as long as recorded, disturbed as simulated workers are. Throws
  // ConfigError as ValidateReplay does.
  ReplayEngine(Replay replay, int rank, uint64_t seed, double compute_factor = 1,
               const ComputeDisturbance& disturbance = {});

  const ModelSpec& model() const override { return model_; }
  int64_t batch() const override { return batch_; }

  int steps() const override { return replay_.layers_size(); }
  const std::string& step_name(int step) const override { return replay_.layers(step).name(); }
  std::optional<int> layer_of_step(int step) const override { return layer_of_step_[step]; }

  void BindParameters(int layer, std::span<float> values) override;
  void FillParameters() override;

  // A part of the batch takes its share of the recorded times; gradients stay what they are.
  void SetShare(const DataShare& share) override;
  void LoadBatch(int64_t iteration) override;
  void Forward(int step) override;
  void Backward(int step, const GradientBuffers& target) override;
  // Nothing is computed, so there is no loss: 0.
  float loss() const override { return 0; }

  TestResult Test() override { return {}; }

 private:
  using Clock = std::chrono::steady_clock;

  // Up to two places where values were written whole: the last ones.
  using Written = std::array<const float*, 2>;

  struct WrittenTargets {
    Written dense = {};
    Written u = {};
    Written v = {};
  };

  void WriteGradient(int layer, const GradientBuffers& target);
  // Those of iteration_; whole unless `written` has the place.
  void WriteValues(uint64_t seed, std::span<float> values, Written& written) const;

  // `pass`: its number in the iteration.
  void StartStep(int pass, double milliseconds);
  void FinishStep();

  Replay replay_;
  uint64_t rank_;
  uint64_t seed_;
  double compute_factor_;
  ComputeDisturbance disturbance_;
  int64_t batch_;  // the present part
  ModelSpec model_;
  std::vector<std::optional<int>> layer_of_step_;
  std::vector<std::span<float>> parameters_;  // of the model's layers
  std::vector<WrittenTargets> written_;       // of the model's layers

  uint64_t iteration_ = 0;
  Clock::time_point step_end_;  // when the present step ends or the last one should have
  Clock::time_point returned_;  // when the last step returned to the caller
};

}  // namespace poseidon
