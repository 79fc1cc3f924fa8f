#include "scheduler/layer_times_mean.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace poseidon {
namespace {

bool AreTimes(const google::protobuf::RepeatedField<double>& milliseconds, int layers) {
  return milliseconds.size() == layers &&
         std::all_of(milliseconds.begin(), milliseconds.end(),
                     [](double time) { return std::isfinite(time) && time >= 0; });
}

}  // namespace

std::optional<wire::LayerTimes> LayerTimesMean::Add(const NodeId& worker, wire::LayerTimes times,
                                                    int layers, int workers) {
  if (!AreTimes(times.forward_ms(), layers) || !AreTimes(times.backward_ms(), layers)) {
    return std::nullopt;
  }
  const bool first = times_.emplace(worker, std::move(times)).second;
  return first ? MeanOf(workers) : std::nullopt;
}

std::optional<wire::LayerTimes> LayerTimesMean::Remain(int workers) {
  return times_.size() > in_mean_ ? MeanOf(workers) : std::nullopt;
}

std::optional<wire::LayerTimes> LayerTimesMean::MeanOf(int workers) {
  if (static_cast<int>(times_.size()) < workers) return std::nullopt;
  const int layers = times_.begin()->second.forward_ms_size();
  wire::LayerTimes mean;
  for (int layer = 0; layer < layers; ++layer) {
    double forward = 0;
    double backward = 0;
    for (const auto& [reporter, measured] : times_) {
      forward += measured.forward_ms(layer);
      backward += measured.backward_ms(layer);
    }
    const auto reports = static_cast<double>(times_.size());
    mean.add_forward_ms(forward / reports);
    mean.add_backward_ms(backward / reports);
  }
  in_mean_ = times_.size();
  return mean;
}

}  // namespace poseidon
