// A frame's header, as it comes from the network, with a body of some size.
#include <cstring>

#include "tests/fuzz/fuzz.h"
#include "transport/zmq/zmq_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint16_t body = 0;
  if (size < sizeof(body)) return 0;
  std::memcpy(&body, data, sizeof(body));
  const poseidon::DecodedHeader decoded = poseidon::DecodeHeader(
      std::as_bytes(std::span(data + sizeof(body), size - sizeof(body))), body);
  if (!decoded.fault.empty()) return 0;
  // A good frame is one that a node could have sent.
  poseidon::Envelope envelope = decoded.envelope;
  envelope.body = poseidon::Payload::FromString(std::string(body, 'x'));
  const std::string again = poseidon::EncodeHeader(envelope, decoded.number);
  const poseidon::DecodedHeader same =
      poseidon::DecodeHeader(std::as_bytes(std::span(again)), body);
  if (!same.fault.empty() || same.number != decoded.number ||
      same.envelope.from != decoded.envelope.from ||
      same.envelope.iteration != decoded.envelope.iteration) {
    __builtin_trap();
  }
  return 0;
}
