#include "server/zeroed_memory.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace poseidon {

void ZeroedMemory::Free::operator()(float* memory) const { std::free(memory); }

ZeroedMemory::ZeroedMemory(int64_t floats)
    : memory_(static_cast<float*>(std::calloc(std::max<int64_t>(floats, 1), sizeof(float)))),
      floats_(floats) {
  if (memory_ == nullptr) throw std::bad_alloc();
}

std::span<float> ZeroedMemory::Take(int64_t floats) {
  CHECK_LE(floats, floats_ - taken_);
  float* const begin = memory_.get() + taken_;
  taken_ += floats;
  return {begin, static_cast<size_t>(floats)};
}

}  // namespace poseidon
