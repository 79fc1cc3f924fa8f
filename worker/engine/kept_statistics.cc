#include "worker/engine/kept_statistics.h"

#include <glog/logging.h>

#include <algorithm>

namespace poseidon {
namespace {

constexpr size_t kKept = 2;

}  // namespace

KeptStatistics::KeptStatistics(std::vector<std::span<float>> statistics)
    : statistics_(std::move(statistics)) {
  for (const std::span<float> layer : statistics_) floats_ += layer.size();
}

std::vector<float> KeptStatistics::Copy() const {
  std::vector<float> all;
  all.reserve(floats_);
  for (const std::span<float> layer : statistics_) {
    all.insert(all.end(), layer.begin(), layer.end());
  }
  return all;
}

void KeptStatistics::Set(std::span<const float> statistics) {
  CHECK_EQ(statistics.size(), floats_);
  for (const std::span<float> layer : statistics_) {
    std::ranges::copy(statistics.first(layer.size()), layer.begin());
    statistics = statistics.subspan(layer.size());
  }
}

void KeptStatistics::Keep(int64_t iteration) {
  if (floats_ == 0 || before_.contains(iteration)) return;
  before_.emplace(iteration, Copy());
  if (before_.size() > kKept) before_.erase(before_.begin());
}

void KeptStatistics::GoBack(int64_t iteration) {
  const auto kept = before_.find(iteration);
  if (kept != before_.end()) Set(kept->second);
  // What came after it will come again.
  before_.erase(before_.upper_bound(iteration), before_.end());
}

}  // namespace poseidon
