// Payload: the bytes of a message, shared instead of copied.
//
// A payload is a read-only range of bytes together with whatever keeps it alive: a received
// ZeroMQ frame, a layer's gradient buffer, a string. Copying a payload copies a reference. A
// phantom payload has a size and no bytes: simulations at a thousand workers send those, through
// the same code.
//
// Thread safety: immutable after construction; copies may be used and destroyed on any thread. The
// owner of the bytes promises not to change them while a copy of the payload may still be read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace poseidon {

class Payload {
 public:
  // Empty: size 0, not a phantom.
  Payload() = default;

  // Bytes kept alive by `owner`; data() is bytes.data(), nothing is copied.
  static Payload View(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  // Floats kept alive by `owner`, in host byte order (all machines of a job are little-endian).
  static Payload View(std::span<const float> floats, std::shared_ptr<const void> owner);
  // Takes the string.
  static Payload FromString(std::string bytes);
  // `size` bytes that do not exist.
  static Payload Phantom(size_t size);

  size_t size() const { return size_; }
  bool phantom() const { return size_ > 0 && data_ == nullptr; }
  // size() bytes, not necessarily aligned for anything; empty for a phantom.
  std::span<const std::byte> bytes() const {
    return data_ == nullptr ? std::span<const std::byte>() : std::span(data_, size_);
  }
  // A copy of the bytes as a string, for control messages.
  std::string ToString() const;
  // What keeps the bytes alive; null for phantom and empty payloads.
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace poseidon
