#include "transport/lane_holds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace poseidon {

void LaneHolds::Add(Duration held) {
  const double microseconds = std::chrono::duration<double, std::micro>(held).count();
  const double octave = std::log2(std::max(microseconds, 1.0));
  const int bin = std::min(static_cast<int>(octave * kBinsOfOctave), kBins - 1);
  bins_[bin].fetch_add(1, std::memory_order_relaxed);
}

LaneHolds::Counts LaneHolds::counts() const {
  Counts counts;
  std::transform(bins_.begin(), bins_.end(), counts.begin(),
                 [](const auto& bin) { return bin.load(std::memory_order_relaxed); });
  return counts;
}

double LaneHolds::Percentile(const Counts& counts, double share) {
  constexpr double kMicrosecond = 1e-6;
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  int64_t below = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    below += counts[bin];
    if (below == 0 || static_cast<double>(below) < share * static_cast<double>(all)) continue;
    return kMicrosecond * std::exp2(static_cast<double>(bin + 1) / kBinsOfOctave);
  }
  return 0;
}

LaneHolds::Counts operator-(LaneHolds::Counts counts, const LaneHolds::Counts& before) {
  for (size_t bin = 0; bin < counts.size(); ++bin) counts[bin] -= before[bin];
  return counts;
}

LaneHolds::Counts operator+(LaneHolds::Counts counts, const LaneHolds::Counts& others) {
  for (size_t bin = 0; bin < counts.size(); ++bin) counts[bin] += others[bin];
  return counts;
}

}  // namespace poseidon
