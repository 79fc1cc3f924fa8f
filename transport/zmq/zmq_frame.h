// The header frame of a message on the wire: Envelope to wire::FrameHeader and back, with all the
// checks that a frame from the network must pass before an actor sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/envelope.h"

namespace poseidon {

// Goes up when a node could misread a frame of an older one; frames of another version are dropped.
constexpr uint32_t kProtocolVersion = 4;

// wire::FrameHeader, serialized. `to` and the body itself are not part of it. `number`: of the
// frame among those of its way; 0: it has none.
std::string EncodeHeader(const Envelope& envelope, uint64_t number = 0);

struct DecodedHeader {
  // All but `to` and `body`.
  Envelope envelope;
  uint64_t number = 0;
  // Why the frame must be dropped; empty: it is good.
  std::string fault;
};

// Checks a header that came with a body of `body_bytes`. Any bytes may be given.
DecodedHeader DecodeHeader(std::span<const std::byte> header, size_t body_bytes);

}  // namespace poseidon
