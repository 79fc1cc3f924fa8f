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

std::optional<wire::LayerTimes> LayerTimesMean::Add(int worker, wire::LayerTimes times, int layers,
                                                    const std::set<int>& workers) {
  if (!AreTimes(times.forward_ms(), layers) || !AreTimes(times.backward_ms(), layers)) {
    return std::nullopt;
  }
  times_.emplace(worker, std::move(times));
  return Remain(workers);
}

std::optional<wire::LayerTimes> LayerTimesMean::Remain(const std::set<int>& workers) {
  std::erase_if(times_, [&](const auto& report) { return !workers.contains(report.first); });
  if (told_ || times_.empty() || times_.size() < workers.size()) return std::nullopt;
  told_ = true;
  const int layers = times_.begin()->second.forward_ms_size();
  wire::LayerTimes mean;
  for (int layer = 0; layer < layers; ++layer) {
    double forward = 0;
    double backward = 0;
    for (const auto& [worker, measured] : times_) {
      forward += measured.forward_ms(layer);
      backward += measured.backward_ms(layer);
    }
    const auto reports = static_cast<double>(times_.size());
    mean.add_forward_ms(forward / reports);
    mean.add_backward_ms(backward / reports);
  }
  return mean;
}

}  // namespace poseidon
