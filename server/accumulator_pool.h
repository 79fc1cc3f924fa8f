// AccumulatorPool: the memory in which gradients are summed.
//
// In the worst case every KV pair gathers gradients at the same time, so there is a buffer for
// each. They are handed out last in, first out, and the kernel backs memory only once it is
// touched: what counts in practice is how many pairs are open at once, a few when the workers keep
// in step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace poseidon {

// Not thread-safe: a pool belongs to one lane.
class AccumulatorPool {
 public:
  // `buffers` buffers of `floats` floats each.
  AccumulatorPool(size_t buffers, int64_t floats);

  // A buffer of at least `size` <= floats, contents arbitrary.
  std::span<float> Borrow(int64_t size);
  void Return(std::span<float> buffer);
  // The most buffers that were ever out at once.
  size_t most_borrowed() const { return most_borrowed_; }

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  int64_t stride_;
  std::unique_ptr<float, Free> memory_;
  std::vector<float*> free_;
  size_t buffers_;
  size_t most_borrowed_ = 0;
};

}  // namespace poseidon
