// LayerTimer: how long each layer computes, so that the scheduler can plan with measured times.
#pragma once

#include <optional>
#include <vector>

#include "core/time.h"
#include "proto/wire.pb.h"

namespace poseidon {

// A value; the training thread's.
class LayerTimer {
 public:
  // The steps' layers, in forward order, as worker/engine/engine.h counts them; a step without
  // parameters counts to the next layer below it that has some, the first steps to the first layer.
  // At least one step has a layer.
  explicit LayerTimer(const std::vector<std::optional<int>>& layer_of_step);

  void AddForward(int step, Duration duration) {
    layers_[layer_of_step_[step]].forward += duration;
  }
  void AddBackward(int step, Duration duration) {
    layers_[layer_of_step_[step]].backward += duration;
  }
  // An iteration is over. Gives the mean times once, when enough iterations are measured.
  std::optional<wire::LayerTimes> EndIteration();

 private:
  struct Layer {
    Duration forward{};
    Duration backward{};
  };

  std::vector<int> layer_of_step_;
  std::vector<Layer> layers_;
  int iterations_ = 0;  // that are over
};

}  // namespace poseidon
