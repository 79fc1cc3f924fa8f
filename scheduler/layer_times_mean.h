// LayerTimesMean: what the workers of a job measured of its layers, gathered until all that it has
// now have told it, and their mean. Those that were lost, or have left, do not count.
//
//   LayerTimesMean times;
//   if (const auto mean = times.Add(rank, told, layers, {0, 1, 2})) { ... }
//   if (const auto mean = times.Remain({0, 2})) { ... }
//
// A value; not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "proto/wire.pb.h"

namespace poseidon {

class LayerTimesMean {
 public:
  // A worker of this rank has measured. The mean, once, if it is the last one of `workers`, whose
  // ranks these are. What is not a time for each of `layers` layers is ignored, and so is what a
  // worker says again.
  std::optional<wire::LayerTimes> Add(int worker, wire::LayerTimes times, int layers,
                                      const std::set<int>& workers);

  // A worker is lost. Another one may come for its rank, on another machine.
  void Forget(int worker) { times_.erase(worker); }

  // The workers are these now. The mean, once, if those that it was waited for are gone.
  std::optional<wire::LayerTimes> Remain(const std::set<int>& workers);

 private:
  std::map<int, wire::LayerTimes> times_;  // by the worker's rank
  bool told_ = false;                      // the mean
};

}  // namespace poseidon
