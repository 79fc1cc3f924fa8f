#include "server/copy_pool.h"

#include <glog/logging.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace poseidon {

// The buffers that no frame uses. Shared with the frames, which put theirs back.
struct CopyPool::Shelf {
  using Buffer = std::unique_ptr<std::byte[]>;

  std::mutex mutex;
  std::vector<Buffer> free;
};

CopyPool::CopyPool(size_t bytes) : bytes_(bytes), shelf_(std::make_shared<Shelf>()) {}

Payload CopyPool::Copy(std::span<const std::byte> bytes) {
  CHECK_LE(bytes.size(), bytes_);
  Shelf::Buffer buffer;
  {
    const std::lock_guard lock(shelf_->mutex);
    if (!shelf_->free.empty()) {
      buffer = std::move(shelf_->free.back());
      shelf_->free.pop_back();
    }
  }
  if (buffer == nullptr) {
    buffer = std::make_unique_for_overwrite<std::byte[]>(bytes_);
    ++buffers_;
  }
  std::copy(bytes.begin(), bytes.end(), buffer.get());
  const std::shared_ptr<const void> owner(buffer.release(), [shelf = shelf_](std::byte* back) {
    const std::lock_guard lock(shelf->mutex);
    shelf->free.emplace_back(back);
  });
  return Payload::View(
      std::span<const std::byte>(static_cast<const std::byte*>(owner.get()), bytes.size()), owner);
}

}  // namespace poseidon
