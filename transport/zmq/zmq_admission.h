// Who may connect to a node: its answer to ZeroMQ's question about each new connection that it
// accepts (ZAP, RFC 27).
#pragma once

#include <string>
#include <thread>
#include <zmq.hpp>

#include "core/net/ip_networks.h"
#include "transport/counters.h"
#include "transport/logged_peers.h"
#include "transport/zmq/zmq_options.h"

namespace poseidon {

// Admits connections that have the job's key, if there is one, and come from an address of
// ZmqOptions.allowed, if that has any, or of this machine's loopback. Others are counted as
// refused_connections and logged once per host. One thread of its own, from construction to Stop.
class ZmqAdmission {
 public:
  // To be made before any socket of `context` is bound or connected; all must outlive this.
  ZmqAdmission(zmq::context_t& context, const ZmqOptions& options, TransportCounters& counters);
  // Stop().
  ~ZmqAdmission();
  ZmqAdmission(const ZmqAdmission&) = delete;
  ZmqAdmission& operator=(const ZmqAdmission&) = delete;

  // Shuts the context down: its other sockets must be closed before. Idempotent.
  void Stop();

 private:
  void Run();
  // Why a connection with this public key (32 bytes, empty without CURVE) may not be made; empty:
  // it may.
  std::string FindFault(const std::string& address, const std::string& public_key) const;
  void Refuse(const std::string& address, const std::string& fault);

  zmq::context_t& context_;
  TransportCounters& counters_;
  const IpNetworks allowed_;
  std::string public_key_;            // 32 bytes; empty: none is asked for
  LoggedPeers<std::string> refused_;  // addresses
  zmq::socket_t questions_;
  std::thread thread_;
};

}  // namespace poseidon
