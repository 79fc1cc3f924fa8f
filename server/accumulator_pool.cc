#include "server/accumulator_pool.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "core/alignment.h"

namespace poseidon {
namespace {

// A cache line: buffers do not share one, and sums start aligned for any vector unit.
constexpr int64_t kAlignedFloats = kVectorAlignment / sizeof(float);

}  // namespace

void AccumulatorPool::Free::operator()(float* memory) const { std::free(memory); }

AccumulatorPool::AccumulatorPool(size_t buffers, int64_t floats)
    : stride_((floats + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats), buffers_(buffers) {
  if (buffers == 0 || floats == 0) return;
  // Not zeroed: that would touch every page.
  memory_.reset(static_cast<float*>(std::aligned_alloc(
      kVectorAlignment, buffers * static_cast<size_t>(stride_) * sizeof(float))));
  if (memory_ == nullptr) throw std::bad_alloc();
  for (size_t i = buffers; i > 0; --i) {
    free_.push_back(memory_.get() + static_cast<int64_t>(i - 1) * stride_);
  }
}

std::span<float> AccumulatorPool::Borrow(int64_t size) {
  CHECK(!free_.empty() && size <= stride_);
  float* buffer = free_.back();
  free_.pop_back();
  most_borrowed_ = std::max(most_borrowed_, buffers_ - free_.size());
  return {buffer, static_cast<size_t>(size)};
}

void AccumulatorPool::Return(std::span<float> buffer) { free_.push_back(buffer.data()); }

}  // namespace poseidon
