#include "client/pace/layer_timer.h"

namespace poseidon {
namespace {

// In the first iterations memory is touched for the first time, connections are made, and libraries
// choose and compile their kernels; in the third a GPU's pass is captured as graphs first
// (worker/torch/torch_net.cc).
constexpr int kSkipped = 3;
// Evens out what else the machine does; few enough that a job gains from a better plan early.
constexpr int kMeasured = 10;

}  // namespace

LayerTimer::LayerTimer(const std::vector<std::optional<int>>& layer_of_step) {
  int below = 0;
  for (const std::optional<int>& layer : layer_of_step) {
    if (layer) below = *layer;
    layer_of_step_.push_back(below);
  }
  layers_.resize(below + 1);
}

std::optional<wire::LayerTimes> LayerTimer::EndIteration() {
  ++iterations_;
  if (iterations_ == kSkipped) layers_.assign(layers_.size(), {});
  if (iterations_ != kSkipped + kMeasured) return std::nullopt;
  wire::LayerTimes times;
  for (const Layer& layer : layers_) {
    times.add_forward_ms(ToSeconds(layer.forward) * 1000 / kMeasured);
    times.add_backward_ms(ToSeconds(layer.backward) * 1000 / kMeasured);
  }
  return times;
}

}  // namespace poseidon
