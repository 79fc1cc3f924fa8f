// KeptStatistics: what a net has beside the model and training changes, the statistics of its
// BatchNorm layers, as it was before each of the last two iterations. A worker that goes back after
// a loss goes back by at most one iteration (client/sync/kept_state.h), with its statistics.
//
// A value that looks at memory of others; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace poseidon {

class KeptStatistics {
 public:
  // Of the memory of an engine (Engine::Statistics), which outlives this.
  explicit KeptStatistics(std::vector<std::span<float>> statistics);

  // Of all, in order. 0: the net has none, and nothing here has an effect.
  size_t floats() const { return floats_; }
  std::vector<float> Copy() const;
  // `floats()` of them, as Copy has them.
  void Set(std::span<const float> statistics);

  // They are those before this iteration; if they have been kept of it already they stay so.
  void Keep(int64_t iteration);
  // They are those before this iteration again: one of the two that were kept last, or the next,
  // which has not begun.
  void GoBack(int64_t iteration);

 private:
  std::vector<std::span<float>> statistics_;
  size_t floats_ = 0;
  std::map<int64_t, std::vector<float>> before_;  // by iteration
};

}  // namespace poseidon
