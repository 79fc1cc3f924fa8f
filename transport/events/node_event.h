// NodeEvent: something that has happened in a node; and EventRing, the last of them that a thread
// has seen, always kept, for those who ask why a job has ended.
//
//   EventRing ring(2048);
//   ring.Add({.time = SteadyNow(), .number = 7, .type = NodeEvent::Type::kSent, ...});
//   for (const NodeEvent& event : ring.Read()) ...
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/time.h"
#include "transport/address.h"
#include "transport/envelope.h"

namespace poseidon {

// What the program that runs a node does. Numbers are those of the files (event_file.h).
enum class Activity : int32_t {
  kComputing = 1,  // or whatever else a program does that waits for nobody
  kWaiting = 2,    // for the values of a layer
  kSnapshot = 3,   // writes one
  kTesting = 4,
  kPreparing = 5,  // joins, declares its model, waits for the plan and for others to be ready
  kFinishing = 6,  // waits for the job's end
};

// "computing", "waiting", ...; for numbers that are none of these "activity N".
std::string ActivityName(int32_t activity);

// A value of 56 bytes without gaps, as EventRing copies its words.
struct NodeEvent {
  enum class Type : uint8_t {
    kSent = 1,     // a frame was handed to the socket
    kArrived = 2,  // a frame was handed to the actor
    kBegan = 3,    // an activity of the node's program, which lasts until the next one begins
  };

  Time time{};          // of the steady clock
  uint64_t number = 0;  // of the frame, from 1 on, among all from its sender's lane to its
                        // receiver's; 0: unknown
  int64_t iteration = 0;
  int64_t bytes = 0;    // of the frame's body
  uint32_t bucket = 0;  // kBegan: the layer that is waited for
  uint32_t chunk = 0;
  uint32_t step = 0;
  int32_t kind = 0;  // MessageKind; kBegan: Activity
  int32_t rank = -1;
  int16_t lane = 0;  // `rank`, `lane` and `role`: of the other node
  uint8_t role = 0;
  Type type = Type::kBegan;

  Address peer() const { return {{static_cast<Role>(role), rank}, lane}; }
  bool operator==(const NodeEvent&) const = default;
};

// Of a frame that has been sent to, or has arrived from, `peer`.
NodeEvent FrameEvent(NodeEvent::Type type, Time time, const Envelope& envelope, const Address& peer,
                     uint64_t number);

// One thread adds and never waits; any thread reads. Its memory is that of its construction.
class EventRing {
 public:
  // Keeps the newest `capacity` events, rounded up to a power of two.
  explicit EventRing(size_t capacity);

  void Add(const NodeEvent& event);
  // What is kept, the oldest first. An event that is overwritten meanwhile is left out.
  std::vector<NodeEvent> Read() const;
  // How many have been added.
  uint64_t count() const { return count_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kWords = sizeof(NodeEvent) / sizeof(uint64_t);
  using Slot = std::array<std::atomic<uint64_t>, kWords>;

  const uint64_t mask_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace poseidon
