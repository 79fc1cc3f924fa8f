// KeptStatistics: what a net has beside the model and training changes (Engine::Statistics), such
// as the statistics of its BatchNorm layers, as it was before each of the last three iterations. A
// worker that goes back after a loss goes back with it: to t, where it may have sent its gradient
// of t + 1 (client/sync/kept_state.h) and be about to begin t + 2.
//
// Where they are a device's, Keep and GoBack put copies in the stream of the net's passes and wait
// for nothing; Copy and Set return when all that is in the stream is done.
//
// Looks at memory of others; not thread-safe, the training thread's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/compute_device.h"
#include "worker/engine/engine.h"

namespace poseidon {

class KeptStatistics {
 public:
  // Of the memory of an engine (Engine::Statistics), which computes on `device`, or, if that is
  // null, on this thread. Both outlive this, and this outlives what the device was asked for.
  KeptStatistics(std::vector<std::span<float>> statistics, ComputeDevice* device);
  // Likewise, where `kept` says so; else of none.
  KeptStatistics(const Engine& engine, bool kept, ComputeDevice* device)
      : KeptStatistics(kept ? engine.Statistics() : std::vector<std::span<float>>(), device) {}

  // Of all, in order. 0: the net has none, and nothing here has an effect.
  size_t floats() const { return floats_; }
  std::vector<float> Copy();
  // `floats()` of them, as Copy has them.
  void Set(std::span<const float> statistics);

  // They are those before this iteration; if they have been kept of it already they stay so.
  void Keep(int64_t iteration);
  // They are those before this iteration again: one of the three that were kept last, or the next,
  // which has not begun.
  void GoBack(int64_t iteration);

 private:
  struct Kept {
    std::optional<int64_t> iteration;  // before which they were so; none: nothing is kept
    DeviceMemory memory;
  };

  DeviceMemory Allocate() const;
  // Behind what has been asked of the device.
  void CopyTo(const DeviceMemory& memory);
  void CopyFrom(const DeviceMemory& memory);
  void Move(void* to, const void* from, size_t bytes);
  Kept* Find(int64_t iteration);

  std::vector<std::span<float>> statistics_;
  ComputeDevice* device_;
  size_t floats_ = 0;
  std::array<Kept, 3> kept_;
  DeviceMemory moved_;  // what Copy and Set move
};

}  // namespace poseidon
