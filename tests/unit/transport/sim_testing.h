// What the tests of SimRuntime share: scripted actors and a small cluster of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transport/sim/sim_runtime.h"

namespace poseidon::sim_testing {

inline constexpr int kLane = kFirstDataLane;
inline constexpr Time kForever = Time::max();
constexpr Time Ns(int64_t count) { return Time(count); }
inline NodeId Worker(int rank) { return {Role::kWorker, rank}; }

inline Envelope Message(int to, int64_t size, int priority = 0, uint32_t chunk = 0) {
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  envelope.to = {Worker(to), kLane};
  envelope.priority = priority;
  envelope.chunk = chunk;
  envelope.body = Payload::Phantom(static_cast<size_t>(size));
  return envelope;
}

struct Script : Actor {
  std::function<void(Outbox&)> on_start;
  std::function<void(const Envelope&, Outbox&)> on_message;
  std::function<void(TimerId, Outbox&)> on_timer;
  void OnStart(Outbox& outbox) override {
    if (on_start) on_start(outbox);
  }
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    if (on_message) on_message(envelope, outbox);
  }
  void OnTimer(TimerId timer, Outbox& outbox) override {
    if (on_timer) on_timer(timer, outbox);
  }
};

struct Arrival {
  int64_t time;
  int to;
  Envelope envelope;
};

// Workers 0, 1, ..., each with a script on lane kLane that notes what arrives; all know each other.
class ScriptedCluster {
 public:
  // One machine a worker: 1 byte/ns and 1,000 ns if nothing else is said, and no header.
  explicit ScriptedCluster(int workers)
      : ScriptedCluster(std::vector<NicSpec>(workers, NicSpec{1e9, Ns(1000)})) {}
  explicit ScriptedCluster(const std::vector<NicSpec>& nics, SimOptions options = {})
      : runtime(WithoutHeader(options)) {
    for (size_t i = 0; i < nics.size(); ++i) AddWorker(runtime.AddMachine(nics[i]));
  }

  Script& AddWorker(int machine) {
    const int rank = static_cast<int>(scripts.size());
    const SimNode node = runtime.AddNode(Worker(rank), machine);
    for (SimNode other = 0; other <= node; ++other) {
      runtime.SetRoute(node, {Worker(other), kLane}, runtime.endpoint(other, kLane));
      runtime.SetRoute(other, {Worker(rank), kLane}, runtime.endpoint(node, kLane));
    }
    scripts.push_back(Attach(node, kLane));
    scripts.back()->on_message = [this, rank](const Envelope& envelope, Outbox& outbox) {
      arrivals.push_back({outbox.now.count(), rank, envelope});
    };
    return *scripts.back();
  }
  Script* Attach(SimNode node, int lane) {
    auto script = std::make_unique<Script>();
    Script* result = script.get();
    runtime.Attach(node, lane, std::move(script));
    return result;
  }

  void SendAtStart(int from, std::vector<Envelope> envelopes) {
    scripts[from]->on_start = [envelopes](Outbox& outbox) { outbox.messages = envelopes; };
  }
  std::vector<int64_t> TimesAt(int rank) const {
    std::vector<int64_t> times;
    for (const Arrival& arrival : arrivals) {
      if (arrival.to == rank) times.push_back(arrival.time);
    }
    return times;
  }
  std::vector<uint32_t> Chunks() const {
    std::vector<uint32_t> chunks;
    for (const Arrival& arrival : arrivals) chunks.push_back(arrival.envelope.chunk);
    return chunks;
  }

  SimRuntime runtime;
  std::vector<Script*> scripts;
  std::vector<Arrival> arrivals;

 private:
  static SimOptions WithoutHeader(SimOptions options) {
    options.header_bytes = 0;
    return options;
  }
};

}  // namespace poseidon::sim_testing
