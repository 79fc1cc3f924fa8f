// ZmqRuntime that stops while connections end and are made.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "core/error.h"
#include "core/net/host_address.h"
#include "core/steady_now.h"
#include "tests/free_endpoints.h"
#include "tests/unit/transport/zmq_testing.h"
#include "transport/zmq/zmq_admission.h"
#include "transport/zmq/zmq_socket.h"

namespace poseidon {
namespace {

// As nodes listen on their control lanes.
std::vector<zmq::socket_t> ListenOn(const std::vector<std::string>& endpoints,
                                    zmq::context_t& context, const ZmqOptions& options) {
  std::vector<zmq::socket_t> receivers;
  for (const std::string& endpoint : endpoints) {
    receivers.push_back(MakeReceiver(context, options, kControlLane));
    receivers.back().set(zmq::sockopt::rcvtimeo, 30'000);
    Eventually([&] {
      try {
        Bind(receivers.back(), options, HostAndPort::Parse(endpoint)->port);
      } catch (const ConfigError&) {
        return false;  // what listened there is not closed yet
      }
      return true;
    });
  }
  return receivers;
}

// For half a second nodes lose their connections to many others, and end just when they have new
// ones, or are about to.
void StopWhileConnectionsAreMadeAnew() {
  constexpr int kPeers = 32;
  std::mt19937 random(1);
  ZmqOptions options = Lanes(1);
  options.linger = Duration(0);
  zmq::context_t context = MakeContext(options);
  TransportCounters counters;
  const ZmqAdmission admission(context, options, counters);
  const std::vector<std::string> endpoints = FreeEndpoints(kPeers);
  const Time end = SteadyNow() + std::chrono::milliseconds(500);
  while (SteadyNow() < end) {
    std::vector<zmq::socket_t> receivers = ListenOn(endpoints, context, options);
    ZmqRuntime node({Role::kWorker, 0}, options);
    for (int peer = 0; peer < kPeers; ++peer) {
      node.SetRoute(WorkerLane(peer + 1, kControlLane), "tcp://" + endpoints[peer]);
    }
    node.Start();
    for (int peer = 0; peer < kPeers; ++peer) {
      node.Post(Gradient(WorkerLane(peer + 1, kControlLane), {}));
    }
    for (zmq::socket_t& receiver : receivers) {
      zmq::message_t frame;
      if (!receiver.recv(frame)) _exit(1);
    }
    receivers.clear();
    receivers = ListenOn(endpoints, context, options);
    // ZeroMQ waits for 20 to 40 ms before it connects again.
    std::this_thread::sleep_for(std::chrono::milliseconds(15 + random() % 30));
    node.Stop();
  }
}

// ZeroMQ ends the process where it can't ask who is at a connection's other end.
TEST(ZmqStop, ANodeMayEndWhileConnectionsAreMade) {
  const auto stop = [] {
    StopWhileConnectionsAreMadeAnew();
    _exit(0);
  };
  EXPECT_EXIT(stop(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace poseidon
