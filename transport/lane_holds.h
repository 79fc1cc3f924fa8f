// How long data lanes were held: by an actor that handles a message, a timer or a slice of work,
// and by what it sends. Meanwhile a lane does not look at its messages, so what is urgent waits as
// long.
//
//   LaneHolds::Counts before = holds.counts();
//   ...
//   const double p99 = LaneHolds::Percentile(holds.counts() - before, 0.99);   // seconds
//
// A histogram with eight bins an octave, so percentiles are right to a tenth. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/time.h"

namespace poseidon {

class LaneHolds {
 public:
  static constexpr int kBinsOfOctave = 8;
  // From a microsecond to twelve days.
  static constexpr int kBins = 40 * kBinsOfOctave;

  using Counts = std::array<int64_t, kBins>;

  void Add(Duration held);
  Counts counts() const;

  // Seconds below which that share of the holds took, to the upper end of its bin; 0 without any.
  static double Percentile(const Counts& counts, double share);

 private:
  std::array<std::atomic<int64_t>, kBins> bins_{};
};

// What has been added since, and what two have together.
LaneHolds::Counts operator-(LaneHolds::Counts counts, const LaneHolds::Counts& before);
LaneHolds::Counts operator+(LaneHolds::Counts counts, const LaneHolds::Counts& others);

}  // namespace poseidon
