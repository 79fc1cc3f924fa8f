#include "transport/zmq/zmq_frame.h"

#include <limits>
#include <utility>

#include "proto/wire.pb.h"

namespace poseidon {

std::string EncodeHeader(const Envelope& envelope, uint64_t number) {
  wire::FrameHeader header;
  header.set_version(kProtocolVersion);
  header.set_kind(static_cast<uint32_t>(envelope.kind));
  header.set_from_role(static_cast<uint32_t>(envelope.from.node.role));
  header.set_from_rank(envelope.from.node.rank);
  header.set_from_lane(envelope.from.lane);
  header.set_epoch(envelope.epoch);
  header.set_iteration(envelope.iteration);
  header.set_bucket(envelope.bucket);
  header.set_chunk(envelope.chunk);
  header.set_step(envelope.step);
  header.set_priority(envelope.priority);
  header.set_body_bytes(envelope.body.size());
  header.set_number(number);
  if (envelope.settings.size() > 0) header.set_settings(envelope.settings.ToString());
  return header.SerializeAsString();
}

namespace {

// Empty if the header is good.
std::string FindFault(const wire::FrameHeader& header, size_t body_bytes) {
  if (header.version() != kProtocolVersion) {
    return "version " + std::to_string(header.version()) + " of the protocol, this node speaks " +
           std::to_string(kProtocolVersion);
  }
  const auto kind = static_cast<MessageKind>(header.kind());
  if (!IsWireKind(kind)) return "a message of " + KindName(kind) + ", which never crosses the wire";
  if (header.from_role() < static_cast<uint32_t>(Role::kScheduler) ||
      header.from_role() > static_cast<uint32_t>(Role::kWorker)) {
    return "a sender of role " + std::to_string(header.from_role());
  }
  if (header.from_rank() < -1) return "a sender of rank " + std::to_string(header.from_rank());
  if (header.from_lane() < kApplicationLane) {
    return "a sender on lane " + std::to_string(header.from_lane());
  }
  if (header.body_bytes() != body_bytes) {
    return "a body of " + std::to_string(body_bytes) + " bytes, its header says " +
           std::to_string(header.body_bytes());
  }
  return "";
}

}  // namespace

DecodedHeader DecodeHeader(std::span<const std::byte> bytes, size_t body_bytes) {
  DecodedHeader decoded;
  wire::FrameHeader header;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !header.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    decoded.fault = "a header that is not one of this protocol's";
    return decoded;
  }
  decoded.fault = FindFault(header, body_bytes);
  if (!decoded.fault.empty()) return decoded;
  Envelope& envelope = decoded.envelope;
  envelope.kind = static_cast<MessageKind>(header.kind());
  envelope.from = {{static_cast<Role>(header.from_role()), header.from_rank()}, header.from_lane()};
  envelope.epoch = header.epoch();
  envelope.iteration = header.iteration();
  envelope.bucket = header.bucket();
  envelope.chunk = header.chunk();
  envelope.step = header.step();
  envelope.priority = header.priority();
  if (!header.settings().empty()) {
    envelope.settings = Payload::FromString(std::move(*header.mutable_settings()));
  }
  decoded.number = header.number();
  return decoded;
}

}  // namespace poseidon
