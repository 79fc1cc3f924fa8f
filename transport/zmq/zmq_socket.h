// The two sorts of sockets that a lane has, with their options. zmq_socket.cc gives each option's
// reason.
#pragma once

#include <optional>
#include <string>
#include <zmq.hpp>

#include "core/time.h"
#include "transport/zmq/zmq_options.h"

namespace poseidon {

// A context with an I/O thread for control and heartbeats and one for each data lane, so that a
// heartbeat never waits behind a gradient.
zmq::context_t MakeContext(const ZmqOptions& options);
// The ROUTER on which `lane` receives from all peers, not yet bound.
zmq::socket_t MakeReceiver(zmq::context_t& context, const ZmqOptions& options, int lane);
// A DEALER on which `lane` is to send to one peer, not yet connected. `lost_after`: a connection
// ends when the other machine has confirmed nothing of what was sent for so long; nullopt: when the
// kernel gives it up, after a quarter of an hour.
zmq::socket_t MakeSender(zmq::context_t& context, const ZmqOptions& options, int lane,
                         std::optional<Duration> lost_after);
// Sets options.unsent_bytes, for which ZeroMQ has no option, for the descriptor of a connection.
void LimitUnsent(int connection, const ZmqOptions& options);
// Binds to `port` of options.bind_host, 0 for any, and returns the port. Throws ConfigError.
int Bind(zmq::socket_t& receiver, const ZmqOptions& options, int port);

}  // namespace poseidon
