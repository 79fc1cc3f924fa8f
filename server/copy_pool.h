// CopyPool: copies of values that may change while a frame with them is under way.
//
// Under staleness or without synchronization a KV pair's values move on while an earlier answer
// waits in a send queue. Buffers are used again once their frame is gone, so there are as many as
// were ever under way at once: at most one a worker and KV pair, since a worker asks again only
// when it has been answered.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/payload.h"

namespace poseidon {

// Belongs to one thread; the payloads may be destroyed on any, also after the pool.
class CopyPool {
 public:
  // For copies of at most `bytes`.
  explicit CopyPool(size_t bytes);

  Payload Copy(std::span<const std::byte> bytes);
  // Buffers ever made.
  size_t buffers() const { return buffers_; }

 private:
  struct Shelf;

  size_t bytes_;
  size_t buffers_ = 0;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace poseidon
