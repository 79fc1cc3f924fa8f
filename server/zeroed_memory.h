// ZeroedMemory: all floats that a shard keeps from one iteration to the next, in one block.
//
// The kernel backs a page when it is first touched, so what is never used costs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace poseidon {

// Not thread-safe. The floats live as long as the object.
class ZeroedMemory {
 public:
  // Throws std::bad_alloc.
  explicit ZeroedMemory(int64_t floats);

  // The next `floats` floats, zeros; at most as many in all as were asked for at the start.
  std::span<float> Take(int64_t floats);

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  std::unique_ptr<float, Free> memory_;
  int64_t floats_;
  int64_t taken_ = 0;
};

}  // namespace poseidon
