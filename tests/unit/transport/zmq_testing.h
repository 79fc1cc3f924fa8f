// What the tests of ZmqRuntime share.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

// Long enough for a machine under sanitizers and load; no test waits for it to pass.
constexpr Duration kPatience = std::chrono::seconds(30);

// An actor made of functions.
struct FunctionActor : Actor {
  std::function<void(Outbox&)> on_start = [](Outbox&) {};
  std::function<void(const Envelope&, Outbox&)> on_message = [](const Envelope&, Outbox&) {};
  std::function<void(TimerId, Outbox&)> on_timer = [](TimerId, Outbox&) {};

  void OnStart(Outbox& outbox) override { on_start(outbox); }
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    on_message(envelope, outbox);
  }
  void OnTimer(TimerId timer, Outbox& outbox) override { on_timer(timer, outbox); }
};

inline std::unique_ptr<Actor> OnMessage(std::function<void(const Envelope&, Outbox&)> action) {
  auto actor = std::make_unique<FunctionActor>();
  actor->on_message = std::move(action);
  return actor;
}

// Gives all it gets to the application.
inline std::unique_ptr<Actor> Forwarder() {
  return OnMessage([](const Envelope& envelope, Outbox& outbox) {
    outbox.Send(envelope);
    outbox.messages.back().to = Here(kApplicationLane);
  });
}

// Answers every envelope with one of the same content.
inline std::unique_ptr<Actor> Echo() {
  return OnMessage([](const Envelope& envelope, Outbox& outbox) {
    outbox.Send(envelope);
    outbox.messages.back().to = envelope.from;
  });
}

inline Address WorkerLane(int rank, int lane) { return {{Role::kWorker, rank}, lane}; }

inline Envelope Gradient(const Address& to, Payload body, int64_t iteration = 0, int priority = 0) {
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  envelope.to = to;
  envelope.iteration = iteration;
  envelope.priority = priority;
  envelope.body = std::move(body);
  return envelope;
}

// Waits until `condition` holds; false: it never did.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline ZmqOptions Lanes(int data_lanes) {
  ZmqOptions options;
  options.bind_host = "127.0.0.1";
  options.data_lanes = data_lanes;
  return options;
}

// Worker `rank` with routes to all lanes of `peers`, whose ranks are their indices.
inline void Connect(ZmqRuntime& node, const std::vector<std::unique_ptr<ZmqRuntime>>& peers) {
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    const auto endpoints = peers[rank]->endpoints();
    for (size_t lane = 0; lane < endpoints.size(); ++lane) {
      node.SetRoute(WorkerLane(static_cast<int>(rank), static_cast<int>(lane)), endpoints[lane]);
    }
  }
}

// Workers 0, 1, ... that know each other, not started.
inline std::vector<std::unique_ptr<ZmqRuntime>> MakeNodes(int count, const ZmqOptions& options) {
  std::vector<std::unique_ptr<ZmqRuntime>> nodes;
  for (int rank = 0; rank < count; ++rank) {
    nodes.push_back(std::make_unique<ZmqRuntime>(NodeId{Role::kWorker, rank}, options));
  }
  for (auto& node : nodes) Connect(*node, nodes);
  return nodes;
}

}  // namespace poseidon
