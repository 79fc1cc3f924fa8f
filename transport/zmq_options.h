// What can be chosen about a node's sockets.
#pragma once

#include <cstdint>
#include <string>

#include "core/time.h"

namespace poseidon {

struct ZmqOptions {
  // Address that the sockets are bound to; "*" is all interfaces.
  std::string bind_host = "*";
  // Address that other nodes reach this one at; part of endpoint().
  std::string public_host = "127.0.0.1";
  // Ports of control and heartbeat lane; 0 takes free ones. Data lanes always take free ones.
  int control_port = 0;
  int heartbeat_port = 0;
  // Number of data lanes.
  int data_lanes = 0;
  // Bytes of bodies handed to one peer's socket and not yet taken by the kernel. One envelope is
  // always let through.
  int64_t window_bytes = 4 << 20;
  // A frame over this size ends its connection. Default: the largest KV pair and then some.
  int64_t max_frame_bytes = int64_t{1} << 30;
  // How long Stop() waits for what is queued to leave (the last "end" messages).
  Duration linger = Seconds(2);
};

}  // namespace poseidon
