#include "core/payload.h"

#include <utility>

namespace poseidon {

Payload Payload::View(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  Payload payload;
  payload.data_ = bytes.data();
  payload.size_ = bytes.size();
  payload.owner_ = std::move(owner);
  return payload;
}

Payload Payload::View(std::span<const float> floats, std::shared_ptr<const void> owner) {
  return View(std::as_bytes(floats), std::move(owner));
}

Payload Payload::FromString(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  return View(std::as_bytes(std::span(owner->data(), owner->size())), owner);
}

Payload Payload::Phantom(size_t size) {
  Payload payload;
  payload.size_ = size;
  return payload;
}

std::string Payload::ToString() const {
  return std::string(reinterpret_cast<const char*>(bytes().data()), bytes().size());
}

}  // namespace poseidon
