// NicModel: machines' links as the simulator has them (transport/sim_runtime.h), for frames that
// are numbers only. The planner predicts with it thousands of exchanges in the time that a
// simulation of the actors takes for one.
//
// A frame of n bytes waits for its machine's egress (by priority, then first come first served, one
// at a time, never preempted), occupies it for n / goodput, may enter the receiver's ingress after
// the latency, waits there (first come first served) and occupies that for n / goodput.
//
// Not thread-safe. Deterministic: what happens at one time happens in the order of its cause.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <vector>

namespace poseidon {

// What travels, and what a timer brings back.
struct Frame {
  int from = 0;  // machines
  int to = 0;
  int priority = 0;   // smaller first
  int64_t bytes = 0;  // with header
  // What the receiver needs to make use of it; does not hold up others.
  int64_t processing = 0;
  // These are the sender's and receiver's business.
  int kind = 0;
  int node = 0;
  int bucket = 0;
  int chunk = 0;
  int step = 0;
  int iteration = 0;
  int64_t left = 0;  // when its last byte had left
};

class NicModel {
 public:
  // Nanoseconds. With `looped` there is one machine that stands for many alike: what it sends comes
  // to itself, over its own ingress, as what the others send would.
  NicModel(int machines, double goodput_bytes_per_second, int64_t latency, bool looped);

  int64_t now() const { return now_; }
  // From frame.from to frame.to; at once within a machine.
  void Send(const Frame& frame);
  // The frame comes back after `delay`.
  void SetTimer(int64_t delay, const Frame& frame);
  // The next frame that arrives, and now() is when; nothing if there is none.
  std::optional<Frame> Next();

 private:
  enum class EventKind : uint32_t { kEgressFree, kReachesIngress, kLeavesIngress, kArrives };

  struct Event {
    int64_t time;
    uint64_t order;
    EventKind kind;
    uint32_t subject;  // machine or frame
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Queued {
    int priority;
    uint32_t frame;
    uint64_t order;
    bool operator>(const Queued& other) const {
      return priority != other.priority ? priority > other.priority : order > other.order;
    }
  };
  template <typename T>
  using SmallestFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

  struct Machine {
    SmallestFirst<Queued> egress;
    int64_t egress_free = 0;
    bool egress_waking = false;
    std::deque<uint32_t> ingress;  // the first is passing
  };

  uint32_t Keep(const Frame& frame);
  Frame Take(uint32_t index);
  void Push(int64_t time, EventKind kind, uint32_t subject);
  int64_t TransferTime(int64_t bytes) const;
  void StartEgress(uint32_t machine);
  void ReachIngress(uint32_t frame);
  void StartIngress(uint32_t machine);

  double nanoseconds_per_byte_;
  int64_t latency_;
  bool looped_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  SmallestFirst<Event> events_;
  std::vector<Machine> machines_;
  std::vector<Frame> frames_;
  std::vector<uint32_t> free_;
};

}  // namespace poseidon
