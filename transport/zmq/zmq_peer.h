// The way to one lane of one other node: a priority queue, a window, a DEALER.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "core/time.h"
#include "transport/actor.h"
#include "transport/counters.h"
#include "transport/envelope.h"
#include "transport/events/node_event.h"
#include "transport/zmq/zmq_inbox.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_options.h"
#include "transport/zmq/zmq_window.h"

namespace poseidon {

// Bodies from this size on go out without a copy. A smaller one is copied when it goes out, which
// frees its owner's buffer at once and costs less than the wait for that.
constexpr size_t kZeroCopyBytes = 64 << 10;

// How soon a socket is replaced that takes nothing, or could not be made.
constexpr Duration kReplaceAfter = std::chrono::seconds(1);

// Belongs to the lane's thread.
class ZmqPeer {
 public:
  // `window_bytes` may change meanwhile. Throws ProtocolError if the route's endpoint is none.
  ZmqPeer(zmq::context_t& context, const ZmqOptions& options,
          std::shared_ptr<const std::atomic<int64_t>> window_bytes, int lane,
          const Outbox::Route& route, std::shared_ptr<ZmqWaker> waker, TransportCounters& counters,
          EventRing& events);

  // Connects to `endpoint` from now on. What the old connection's socket holds is lost, what is
  // queued is not. Nothing happens if the endpoint is the same. Throws ProtocolError if it is no
  // endpoint; what is queued then waits for another one.
  void MoveTo(const std::string& endpoint);

  void Enqueue(Envelope envelope);
  // Hands what is queued to the socket, most urgent first, while the window has room. False: some
  // is left; the waker is woken when the window has room. If the endpoint does not speak ZeroMQ,
  // or there is no socket, nobody is woken, and the first call after kReplaceAfter tries again.
  bool Pump();
  // Has ZeroMQ give back to the window what it will never send, if it has given up on the endpoint.
  // It does so in calls of the socket only, of which Pump makes none while the window is full.
  void TakeBack();
  // Forgets what is queued.
  void DropQueued();
  // Nothing is queued.
  bool empty() const { return queue_.empty(); }
  // Moreover, the kernel has all that was sent.
  bool idle() const { return queue_.empty() && window_->empty(); }

  // If the route has `tells_loss`: whether, since the last call, a connection was lost as that
  // says.
  bool TakeLoss();
  // Then readable when there may be one; else none.
  std::optional<int> loss_fd() const;

 private:
  struct Queued {
    Envelope envelope;
    uint64_t number;  // first come, first served
  };
  // The order of std::push_heap, whose first is the largest: later than.
  static bool Later(const Queued& a, const Queued& b);

  // One more or less of it is queued.
  void CountQueued(const Envelope& envelope, int change);
  // Throws ProtocolError if the endpoint is none. There is no socket then, nor where the system
  // lacks something for one.
  void Connect();
  // Has ZeroMQ tell of the new socket's connection.
  void Watch();
  // ZeroMQ gives up on an endpoint that does not speak its protocol; a new socket tries again. So
  // does one that could not be made before. Where the endpoint is none, that is logged. False: it
  // is too early for another, or there is none now.
  bool ReplaceSocket();
  // Logs why there is no socket, but not again and again.
  void Complain(const std::string& fault);
  // Sets what can only be set of a connection that is there.
  void TuneConnection();
  // False: ZeroMQ has given up.
  bool Send(const Envelope& envelope, int64_t charge);

  zmq::context_t& context_;
  const ZmqOptions& options_;
  const std::shared_ptr<const std::atomic<int64_t>> window_bytes_;
  const int lane_;
  std::string endpoint_;
  const std::shared_ptr<ZmqWaker> waker_;
  TransportCounters& counters_;
  EventRing& events_;
  uint64_t sent_ = 0;          // frames
  std::vector<Queued> queue_;  // a heap
  uint64_t count_ = 0;
  std::shared_ptr<ZmqWindow> window_;
  const std::optional<Duration> lost_after_;
  const bool tells_loss_;
  zmq::socket_t socket_;
  // Until there is a connection; a later one of the same socket, which is rare, is not tuned.
  std::optional<ZmqMonitor> connecting_;
  // In the place of that where the route has `tells_loss`, as a socket has one monitor.
  std::optional<ZmqMonitor> watch_;
  std::optional<Time> connection_made_;
  Time connected_{};   // or tried in vain
  std::string fault_;  // why it was in vain the last time
};

}  // namespace poseidon
