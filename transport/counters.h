// What a node's transport has seen, for reports and tests.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/lane_holds.h"

namespace poseidon {

// Written by lane threads, read by anybody; each number is exact, the set is not a snapshot.
struct TransportCounters {
  std::atomic<int64_t> frames_sent{0};
  std::atomic<int64_t> frames_received{0};
  std::atomic<int64_t> bytes_sent{0};      // bodies
  std::atomic<int64_t> bytes_received{0};  // bodies
  // Received and thrown away before any actor saw them: not a frame of ours, wrong version, a kind
  // that never crosses the wire, a body that is not as long as its header says, a lane without
  // actor.
  std::atomic<int64_t> malformed_frames{0};
  // Connections that ended without a single good frame: the peer does not speak ZeroMQ, sent a
  // frame over the size limit first thing, or died between connecting and sending.
  std::atomic<int64_t> rejected_connections{0};
  // Connections that were refused for what they said in the handshake: without the job's key, or
  // from an address that is not allowed (ZmqOptions).
  std::atomic<int64_t> refused_connections{0};
  // Envelopes to a node without a route, or within the node to a lane without actor: a bug, or a
  // peer or an actor that is gone.
  std::atomic<int64_t> unroutable{0};
  // Now in the priority queues, not yet handed to a socket.
  std::atomic<int64_t> queued_frames{0};
  std::atomic<int64_t> queued_bytes{0};  // bodies
  // Time that the data lanes' actors have taken, sums and updates included; counted only with
  // ZmqOptions::times_actors.
  std::atomic<int64_t> busy_nanoseconds{0};
  // Likewise, how long each of their calls took; and how much processor time, which is without what
  // the kernel gave to other threads meanwhile.
  LaneHolds lane_holds;
  LaneHolds lane_work;
};

}  // namespace poseidon
