#include "transport/zmq/zmq_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "core/error.h"
#include "core/net/host_address.h"
#include "transport/address.h"

namespace poseidon {
namespace {

// Who connects to a node without a key says this name, which nobody reads. It has ZeroMQ's
// handshake be PLAIN, of whose ends only the one that has bound asks who comes. By NULL both would,
// and ZeroMQ 4.3.4 ends the process where one that has been connected before, and is closed while
// it is making its connection anew, asks again.
constexpr const char* kName = "poseidon";

// Threads that ZMQ_AFFINITY can name: it has 64 bits, bit 0 is control's and the heartbeats'.
constexpr int kMaxDataIoThreads = 63;

// At most so many bytes longer is a frame when it is encrypted: CurveZMQ adds a name, a counter, an
// authenticator and a byte of flags, 33 in all.
constexpr int64_t kCurveBytes = 64;

int DataIoThreads(const ZmqOptions& options) {
  return std::clamp(options.data_lanes, 0, kMaxDataIoThreads);
}

uint64_t Affinity(const ZmqOptions& options, int lane) {
  if (lane < kFirstDataLane) return 1;
  return uint64_t{2} << ((lane - kFirstDataLane) % DataIoThreads(options));
}

// So that a connection ends after so long a silence, to a few seconds.
void SetKeepAlive(zmq::socket_t& socket, Duration silence) {
  constexpr int kIdle = 10;                           // seconds until the first probe
  constexpr int kMostProbes = 100;                    // Linux allows 127
  constexpr double kLongest = kMostProbes * 32767.0;  // seconds; Linux allows 32767 between probes
  const int probing = static_cast<int>(std::clamp(ToSeconds(silence) - kIdle, 1.0, kLongest));
  const int interval = std::max(5, (probing + kMostProbes - 1) / kMostProbes);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, kIdle);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, interval);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, (probing + interval - 1) / interval);
}

void SetCommonOptions(zmq::socket_t& socket, const ZmqOptions& options, int lane) {
  socket.set(zmq::sockopt::affinity, Affinity(options, lane));
  // The lane itself waits for what is queued (ZmqOptions.linger); closing a socket never waits.
  socket.set(zmq::sockopt::linger, 0);
  // ZeroMQ measures frames as they arrive, and drops the connection of one that is too long.
  socket.set(zmq::sockopt::maxmsgsize, options.max_frame_bytes + (options.key ? kCurveBytes : 0));
  socket.set(zmq::sockopt::ipv6, options.ipv6);
  SetKeepAlive(socket, options.silent_connection);
  // With a ZAP domain, or a mechanism other than NULL, ZeroMQ refuses peers of ZMTP 1 and 2. Those
  // protocols have no handshake, so any garbage would pass as one of them and reach the socket.
  socket.set(zmq::sockopt::zap_domain, "poseidon");
  // Both of a connection's ends have the one key pair of the job.
  if (options.key) {
    socket.set(zmq::sockopt::curve_publickey, options.key->public_key);
    socket.set(zmq::sockopt::curve_secretkey, options.key->secret_key);
  }
}

}  // namespace

int ThreadsOf(const ZmqOptions& options) {
  constexpr int kReaper = 1;
  constexpr int kAdmission = 1;
  return kFirstDataLane + options.data_lanes + 1 + DataIoThreads(options) + kReaper + kAdmission;
}

zmq::context_t MakeContext(const ZmqOptions& options) {
  zmq::context_t context(1 + DataIoThreads(options));
  // ZeroMQ's default, 1023, is less than a scheduler of 1,024 workers needs. The limit costs 12
  // bytes a socket.
  context.set(zmq::ctxopt::max_sockets, context.get(zmq::ctxopt::socket_limit));
  return context;
}

zmq::socket_t MakeReceiver(zmq::context_t& context, const ZmqOptions& options, int lane) {
  zmq::socket_t socket(context, zmq::socket_type::router);
  SetCommonOptions(socket, options, lane);
  if (options.key) {
    socket.set(zmq::sockopt::curve_server, true);
  } else {
    socket.set(zmq::sockopt::plain_server, true);
  }
  // Messages per peer that wait for the lane in memory; then TCP makes the peer wait. Each may be a
  // KV pair of megabytes that nothing overtakes, and hundreds of peers may send at once, so no more
  // than lets the I/O thread run ahead of the lane: 2 to 8 are equally fast at 64 KiB and 1 MiB.
  socket.set(zmq::sockopt::rcvhwm, 4);
  // All nodes of a large job connect at once when it starts; the kernel cuts this to its own limit.
  socket.set(zmq::sockopt::backlog, 4096);
  return socket;
}

zmq::socket_t MakeSender(zmq::context_t& context, const ZmqOptions& options, int lane,
                         std::optional<Duration> lost_after) {
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  SetCommonOptions(socket, options, lane);
  if (options.key) {
    socket.set(zmq::sockopt::curve_serverkey, options.key->public_key);
  } else {
    socket.set(zmq::sockopt::plain_username, kName);
  }
  // The window bounds what the socket holds; without a limit of its own a send never has to wait.
  socket.set(zmq::sockopt::sndhwm, 0);
  // Nobody sends to a DEALER of ours; whoever does is not read and soon waits.
  socket.set(zmq::sockopt::rcvhwm, 1);
  if (options.send_buffer_bytes > 0) {
    socket.set(zmq::sockopt::sndbuf, static_cast<int>(options.send_buffer_bytes));
  }
  // Frames for a peer that is not there yet wait in the socket, within the window. (ZMQ_IMMEDIATE
  // would throw them away whenever a connection breaks.)
  socket.set(zmq::sockopt::immediate, false);
  // Milliseconds. A peer that is about to start is found at once; one that is gone, or a thousand
  // that wait for a scheduler, cost little.
  socket.set(zmq::sockopt::reconnect_ivl, 20);
  socket.set(zmq::sockopt::reconnect_ivl_max, 2000);
  // Milliseconds. The kernel would repeat a lost SYN at ever longer intervals for two minutes.
  socket.set(zmq::sockopt::connect_timeout, 3000);
  if (lost_after) {
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(*lost_after);
    socket.set(zmq::sockopt::tcp_maxrt, static_cast<int>(limit.count()));
  }
  return socket;
}

void LimitUnsent(int connection, const ZmqOptions& options) {
  // What it refuses is another connection by now, or a system without the option: nothing is lost
  // but that urgent frames wait longer.
  (void)setsockopt(connection, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &options.unsent_bytes,
                   sizeof(options.unsent_bytes));
}

int Bind(zmq::socket_t& receiver, const ZmqOptions& options, int port) {
  const std::string wanted =
      "tcp://" +
      (IsIpv6Address(options.bind_host) ? "[" + options.bind_host + "]" : options.bind_host) + ":" +
      (port == 0 ? "*" : std::to_string(port));
  try {
    receiver.bind(wanted);
  } catch (const zmq::error_t& error) {
    std::string advice = "; is the address one of this machine's?";
    if (error.num() == EADDRINUSE) {
      advice = "; another program listens on this port: end it or choose another port";
    } else if (error.num() == EACCES) {
      advice = "; choose a port from 1024 on";
    }
    throw ConfigError("cannot listen on port " + std::to_string(port) + " (" + wanted +
                      "): " + error.what() + advice);
  }
  const std::string bound = receiver.get(zmq::sockopt::last_endpoint);
  return std::stoi(bound.substr(bound.rfind(':') + 1));
}

}  // namespace poseidon
