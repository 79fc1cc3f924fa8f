// SimPool: objects that are known by a number, whose memory is used again.
//
// What events of a simulation refer to lives here: an event then needs four bytes for it, and a
// steady simulation allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace poseidon {

// Elements never move in memory. T is movable and has a default constructor.
template <typename T>
class SimPool {
 public:
  // Numbers of elements that were taken are given again, the latest first: they are in the cache.
  uint32_t Put(T&& element) {
    const uint32_t index = Allocate();
    (*this)[index] = std::move(element);
    return index;
  }

  T Take(uint32_t index) {
    free_.push_back(index);
    return std::move((*this)[index]);
  }

  T& operator[](uint32_t index) { return blocks_[index / kBlockSize][index % kBlockSize]; }
  const T& operator[](uint32_t index) const {
    return blocks_[index / kBlockSize][index % kBlockSize];
  }

 private:
  // Large enough that allocating a block costs nothing per element.
  static constexpr uint32_t kBlockSize = 1024;

  uint32_t Allocate() {
    if (!free_.empty()) {
      const uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    if (used_ == blocks_.size() * kBlockSize) {
      blocks_.push_back(std::make_unique<T[]>(kBlockSize));
    }
    return used_++;
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::vector<uint32_t> free_;
  uint32_t used_ = 0;
};

}  // namespace poseidon
