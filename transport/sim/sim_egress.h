// SimEgress: what waits to leave a simulated machine, what is leaving, and when it has left. The
// model is described in transport/sim/sim_runtime.h.
//
//   egress.Push(transfer, ..., now);
//   while (const auto begun = egress.NextBegun()) ...   // its first byte leaves now
//   at egress.NextLeft():                               // unless something begins before
//     while (const auto left = egress.PopLeft(now)) ... // its last byte has left
//
// All times are nanoseconds. A value; not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/sim/sim_heap.h"

namespace poseidon {

class SimEgress {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // `send_buffer` bytes of each connection can't be overtaken; 0: connections do not matter, one
  // transfer leaves at a time, and everything that has not begun can be overtaken.
  SimEgress(int64_t send_buffer, double bytes_per_second)
      : send_buffer_(send_buffer), nanoseconds_per_byte_(1e9 / bytes_per_second) {}

  // `connection` is any number that is the connection's own on this machine. `bytes` is above 0,
  // and `now` never goes back.
  void Push(uint32_t transfer, int64_t priority, uint64_t connection, int64_t bytes, int64_t now);
  // Each transfer that has begun to leave, once.
  std::optional<uint32_t> NextBegun() {
    if (told_ < begun_.size()) return begun_[told_++];
    begun_.clear();
    told_ = 0;
    return std::nullopt;
  }
  // When the first of those that leave will have left, if nothing else begins to; kNever: none
  // leaves.
  int64_t NextLeft() const;
  // One that has left by `now`, which is not after NextLeft(). Others of its connection begin.
  std::optional<uint32_t> PopLeft(int64_t now);

  // Of those that have not begun. Linear in these. `predicate` is of a transfer.
  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    const auto removed = [&](const Queued& waiting) { return predicate(waiting.transfer); };
    for (Connection& connection : connections_) {
      connection.queue.RemoveIf(removed);
      connection.buffer.RemoveIf([&](const Buffered& next) {
        if (!predicate(next.transfer)) return false;
        connection.held -= next.bytes;
        return true;
      });
    }
  }

 private:
  struct Queued {
    int64_t priority;
    uint64_t order;
    int64_t bytes;
    uint32_t transfer;
    bool operator>(const Queued& other) const {
      return IsGreater(priority, order, other.priority, other.order);
    }
  };
  // In a connection's send buffer, in the order in which they were handed over.
  struct Buffered {
    uint64_t order;
    uint32_t transfer;
    int64_t bytes;
    bool operator>(const Buffered& other) const { return order > other.order; }
  };
  struct Connection {
    SimHeap<Queued> queue;
    SimHeap<Buffered> buffer;
    int64_t held = 0;  // bytes in the buffer
    bool leaving = false;
  };
  // The first of a connection's buffer.
  struct Leaving {
    double tag;  // bytes that each busy connection will have sent when its last byte leaves
    uint64_t order;
    uint32_t transfer;
    uint32_t connection;
    bool operator>(const Leaving& other) const {
      return IsGreater(tag, order, other.tag, other.order);
    }
  };

  uint32_t IndexOf(uint64_t connection);
  void HandOver(Connection& connection);
  // The connection's next, if it has any, from the virtual time `tag` on.
  void BeginNext(uint32_t connection, double tag);
  void Begin(uint32_t connection, uint32_t transfer, int64_t bytes, double tag);
  // Counts what has left since the last call.
  void Advance(int64_t now);

  int64_t send_buffer_;
  double nanoseconds_per_byte_;
  uint64_t order_ = 0;
  std::vector<Connection> connections_;
  std::unordered_map<uint64_t, uint32_t> index_;
  // Busy connections get equal shares of the link at any time: processor sharing, in the virtual
  // time of Demers, Keshav and Shenker (Analysis and simulation of a fair queueing algorithm,
  // 1989), the bytes that each busy connection has sent. TCP's connections come to that, and
  // Linux's fq_codel, too.
  SimHeap<Leaving> leaving_;
  int busy_ = 0;     // connections
  double sent_ = 0;  // the virtual time, at since_
  int64_t since_ = 0;
  std::vector<uint32_t> begun_;
  size_t told_ = 0;  // of begun_
};

}  // namespace poseidon
