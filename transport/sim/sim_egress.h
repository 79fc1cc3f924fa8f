// SimEgress: what waits to leave a simulated machine, and in which order it does. The model is
// described in transport/sim/sim_runtime.h.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transport/sim/sim_heap.h"

namespace poseidon {

class SimEgress {
 public:
  // `send_buffer` bytes of each connection can't be overtaken; 0: connections do not matter, and
  // everything can.
  explicit SimEgress(int64_t send_buffer) : send_buffer_(send_buffer) {}

  bool empty() const { return send_buffer_ > 0 ? handed_over_.empty() : queue_.empty(); }

  // `connection` is any number that is the connection's own on this machine.
  void Push(uint32_t transfer, int priority, uint64_t connection, int64_t bytes);
  // The transfer that leaves next. Not if empty.
  uint32_t Pop();

  // Linear in what waits. `predicate` is of a transfer, and the same for all of a connection.
  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    const auto removed = [&](const auto& waiting) { return predicate(waiting.transfer); };
    queue_.RemoveIf(removed);
    handed_over_.RemoveIf([&](const HandedOver& next) {
      if (!predicate(next.transfer)) return false;
      connections_[next.connection].held -= next.bytes;
      return true;
    });
    for (Connection& connection : connections_) connection.queue.RemoveIf(removed);
  }

 private:
  struct Queued {
    int priority;
    uint32_t transfer;
    uint64_t order;
    bool operator>(const Queued& other) const {
      return priority != other.priority ? priority > other.priority : order > other.order;
    }
  };
  struct QueuedBytes : Queued {
    int64_t bytes;
  };
  // In a connection's send buffer.
  struct HandedOver {
    int64_t tag;
    uint64_t order;
    uint32_t transfer;
    uint32_t connection;
    int64_t bytes;
    bool operator>(const HandedOver& other) const {
      return tag != other.tag ? tag > other.tag : order > other.order;
    }
  };
  struct Connection {
    SimHeap<QueuedBytes> queue;
    int64_t held = 0;  // bytes in the send buffer
    int64_t tag = 0;   // of the last that was handed over
  };

  void HandOver(uint32_t connection);

  int64_t send_buffer_;
  uint64_t order_ = 0;
  SimHeap<Queued> queue_;  // without a send buffer
  // With one. Connections get equal shares by self-clocked fair queuing (Golestani 1994): a
  // transfer's tag is what its connection will have sent then, had it begun with what leaves now.
  SimHeap<HandedOver> handed_over_;
  int64_t tag_ = 0;  // of what left last
  std::vector<Connection> connections_;
  std::unordered_map<uint64_t, uint32_t> index_;
};

}  // namespace poseidon
