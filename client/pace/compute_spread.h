// How much computing varies from one iteration to the next, measured: what ComputeDisturbance
// (client/pace/compute_disturbance.h) makes up for simulated workers and replays.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/random.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// The disturbance of a machine that took so many seconds for each pass of each iteration: a row an
// iteration, of as many passes each. At least ten iterations, or nothing is known of the spread:
// nullopt. A pure function.
//
// Of a machine that others keep busy spreads may be larger than a job config can say: they are 1
// then.
//
// A pass that takes longer than its median by more than a millisecond and eight of its standard
// deviations (from the median deviation, which a few stalls do not change) was stalled for the
// difference. What is left spreads: an iteration's passes together, and each pass beside the others
// of its iteration. layer_cost is 0: it is no part of a pass.
std::optional<Disturbance> DisturbanceOf(std::span<const std::vector<double>> iterations);

// The same of a training: of its iterations' computing alone, from a fair sample of at most
// kSample. A value; not thread-safe.
class ComputeSpread {
 public:
  static constexpr size_t kSample = 1000;
  // Libraries choose their kernels and memory is touched for the first time.
  static constexpr int kSkipped = 5;

  // An iteration's seconds of computing for so many samples, which may change. One without samples
  // or time says nothing.
  void Add(double seconds, int64_t images);
  // nullopt: of fewer than ten iterations.
  std::optional<wire::ComputePace> Pace() const;

 private:
  int64_t seen_ = 0;
  int64_t images_ = 0;          // of the newest iteration
  std::vector<double> sample_;  // seconds a sample
  Random random_{1};
};

}  // namespace poseidon
