// What can be chosen about a node's sockets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/message_limit.h"
#include "core/time.h"
#include "transport/security/job_key.h"

namespace poseidon {

struct ZmqOptions {
  // Address that the sockets are bound to; "*" is all interfaces.
  std::string bind_host = "*";
  // Nodes are reached by IPv6, and by IPv4 where bind_host is "*". Without it IPv4 is all there is.
  bool ipv6 = false;
  // Address that other nodes reach this one at; part of endpoint().
  std::string public_host = "127.0.0.1";
  // Ports of control and heartbeat lane; 0 takes free ones. Data lanes always take free ones.
  int control_port = 0;
  int heartbeat_port = 0;
  // Number of data lanes.
  int data_lanes = 0;
  // Whether TransportCounters::busy_nanoseconds is counted, which takes a look at the clock a
  // message.
  bool times_actors = false;
  // Bytes of bodies handed to one peer's socket and not yet taken by the kernel; an envelope counts
  // as at least 512, for what ZeroMQ keeps about it. One envelope is always let through.
  int64_t window_bytes = 4 << 20;
  // The kernel's buffer of each outgoing connection; 0 leaves it to the kernel. What is in it can't
  // be overtaken, so it should hold what the link carries in a round trip and no more: the default
  // is enough for 40 Gb/s over 100 microseconds (a longer link wants more, or more lanes). Left
  // alone the kernel takes up to 4 MiB (tcp_wmem), and where both ends share a cache, data that
  // stays in it costs a third less processor time. Linux allows at most net.core.wmem_max, by
  // default 208 KiB, of which it makes twice as much.
  int64_t send_buffer_bytes = 512 << 10;
  // Of these, on data lanes, those that the kernel has not sent yet (TCP_NOTSENT_LOWAT). A frame
  // that is urgent waits behind them at every step of a ring: 128 KiB are a millisecond of 1 Gb/s,
  // where a full buffer is four. It lasts, at 40 Gb/s, for the 26 microseconds in which the I/O
  // thread comes back to fill it.
  int unsent_bytes = 128 << 10;
  // A frame over this size ends its connection.
  int64_t max_frame_bytes = kMostBodyBytes;
  // How long Stop() waits for what is queued to leave (the last "end" messages). With 0 it is lost.
  Duration linger = Seconds(2);
  // After so long a connection ends whose other end is not there any more, which frees its memory:
  // a host has vanished without a word. The heartbeats of the job are quicker but end none. What is
  // in a connection is lost with it, so it should outlive a network that fails for a while. At
  // least 15 s.
  Duration silent_connection = Seconds(25);
  // With a key all connections are encrypted, and only nodes with the same key get in or are spoken
  // to (CurveZMQ). Without one, anybody who reaches a port is taken for a node of the job.
  std::optional<JobKey> key;
  // Networks that connections may come from, as core/net/ip_networks.h takes them;
  // empty: all. The machine's own loopback always may.
  std::vector<std::string> allowed;
  // How many of the last frames of each lane, and of the program's activities, are kept for those
  // who ask later (transport/events/): 56 bytes each. At 8192 frames a second it is a quarter of a
  // second; where there is less to do, and so when a job hangs, much longer.
  int kept_events = 2048;
};

// How many threads a node with these options has, besides those of its program.
int ThreadsOf(const ZmqOptions& options);

}  // namespace poseidon
