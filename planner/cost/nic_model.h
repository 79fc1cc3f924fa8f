// NicModel: machines' links as the simulator has them (transport/sim/sim_runtime.h), for frames
// that are numbers only. The planner predicts with it thousands of exchanges in the time that a
// simulation of the actors takes for one.
//
// A frame of n bytes waits for its connection, leaves at its share of the egress (SimEgress), may
// enter the receiver's ingress after the latency, waits there (first come first served), occupies
// that for n / goodput, and has arrived when it has also left for as long as the latency. Then it
// waits for the lane that it is for, and occupies that for the cost of a message and its
// processing.
//
// Not thread-safe. Deterministic: what happens at one time happens in the order of its cause.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transport/sim/sim_egress.h"
#include "transport/sim/sim_heap.h"

namespace poseidon {

// What travels, and what a timer brings back. As large as a line of a processor's cache, since some
// ten thousand can be on their way at a time.
struct alignas(64) Frame {
  int64_t bytes = 0;  // with header
  // What its lane needs for it besides the cost of a message.
  int64_t processing = 0;
  int64_t left = 0;  // when its last byte had left
  int from = 0;      // machines
  int to = 0;
  int priority = 0;  // smaller first
  int lane = 0;
  // These are the sender's and receiver's business.
  int node = 0;
  int bucket = 0;
  int chunk = 0;
  int step = 0;
  int iteration = 0;
  int8_t kind = 0;
  bool from_server = false;  // else from the machine's worker
  bool to_server = false;
};
static_assert(sizeof(Frame) == 64);

// Nanoseconds and bytes.
struct NicModelOptions {
  int lanes = 1;  // of each of a machine's nodes, of which there are two at most
  std::vector<double> goodput_bytes_per_second;  // by machine
  int64_t latency = 0;
  int64_t message_cost = 0;
  int64_t send_buffer_bytes = 0;  // of each connection; 0: none
  // Machines stand for many alike: what one sends to itself comes over its own ingress, as what the
  // others send would.
  bool representative = false;
  // What a lane needs for a frame besides its `processing`, where that depends on what else has
  // reached the lane: asked of each frame once, in the order in which they do. May be empty.
  std::function<int64_t(const Frame&)> further_processing;
};

class NicModel {
 public:
  explicit NicModel(const NicModelOptions& options);

  int64_t now() const { return now_; }
  // From frame.from to frame.to; at once within a machine.
  void Send(const Frame& frame);
  // The frame comes back after `delay`.
  void SetTimer(int64_t delay, const Frame& frame);
  // To a lane of the sender's own, which takes it when it is done with what has come so far, and is
  // busy for frame.processing before the frame comes back.
  void Post(const Frame& frame);
  // Likewise, but the lane that the frame is for is busy for `duration` first, in turns of a
  // millisecond at most, between which it handles what has come; the most urgent first
  // (transport/actor.h, Work).
  void Work(int64_t duration, const Frame& frame);
  // The next frame that arrives, and now() is when; nothing if there is none.
  std::optional<Frame> Next();

 private:
  enum class EventKind : uint32_t { kEgressLeft, kLeavesIngress, kArrives, kWorked };

  struct Event {
    int64_t time;
    uint32_t order;  // seven iterations of 600,000 messages are the most that is predicted
    EventKind kind : 2;
    uint32_t subject : 30 = 0;  // machine, frame or lane
    bool operator>(const Event& other) const {
      return IsGreater(time, order, other.time, other.order);
    }
  };

  struct Machine {
    Machine(double goodput_bytes_per_second, int64_t send_buffer_bytes)
        : egress(send_buffer_bytes, goodput_bytes_per_second),
          nanoseconds_per_byte(1e9 / goodput_bytes_per_second) {}

    SimEgress egress;
    double nanoseconds_per_byte;
    int64_t egress_wakes = SimEgress::kNever;  // of the kEgressLeft event that counts
    int64_t ingress_free = 0;
  };

  struct Lane {
    int64_t free = 0;  // when it is done with what has come so far
    int64_t turn = 0;  // the length of the turn of work that is among it; 0: there is none
    // Work that is left, by priority, then in the order in which it came.
    std::multimap<int, std::pair<int64_t, Frame>> work;
  };

  uint32_t Keep(const Frame& frame);
  Frame Take(uint32_t index);
  void Push(int64_t time, EventKind kind, uint32_t subject);
  static int64_t TransferTime(int64_t bytes, const Machine& machine);
  // What has begun to leave books its receiver's ingress.
  void BeginLeaving(uint32_t machine);
  void WakeEgress(uint32_t machine);
  void OnEgressLeft(uint32_t machine);
  void QueueTurn(uint32_t lane);
  // The frame whose work is done with the turn that has passed.
  std::optional<Frame> EndTurn(uint32_t lane);
  uint64_t LaneOf(int machine, bool server, int lane) const;
  // When the lane that the frame is for, which it has reached, is done with it.
  int64_t Handled(const Frame& frame);

  NicModelOptions options_;
  int64_t now_ = 0;
  uint32_t order_ = 0;
  SimHeap<Event> events_;
  std::vector<Machine> machines_;
  std::vector<Lane> lanes_;  // by LaneOf
  std::vector<Frame> frames_;
  // Of these, when they have passed the ingress, unless they leave too slowly.
  std::vector<int64_t> passed_;
  std::vector<uint32_t> free_;
};

}  // namespace poseidon
