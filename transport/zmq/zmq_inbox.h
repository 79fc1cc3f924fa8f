// What wakes a lane's thread, and what it finds then: envelopes, routes and actors from other
// threads of the node.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "transport/actor.h"
#include "transport/envelope.h"

namespace poseidon {

// Wakes one thread that sleeps in poll(). A thread that is awake costs its waker no system call.
class ZmqWaker {
 public:
  ZmqWaker();
  ~ZmqWaker();
  ZmqWaker(const ZmqWaker&) = delete;
  ZmqWaker& operator=(const ZmqWaker&) = delete;

  // From any thread. What the caller wrote before is seen by the sleeper once Take() is true.
  void Wake();
  // From any thread, once: the sleeper wakes, and never falls asleep again.
  void Stop();
  bool stopped() const { return stopped_.load(); }

  // The rest belongs to the thread that sleeps.

  // Whether somebody called Wake() since the last Take().
  bool Take();
  // Announces that the caller will poll fd(). False: it was woken already, or stopped, and must
  // not.
  bool FallAsleep();
  // Ends what a successful FallAsleep() began.
  void GetUp();
  // To be called when poll() says that fd() is readable.
  void Clear();
  int fd() const { return fd_; }

 private:
  enum State : int { kAwake, kAsleep, kWoken };
  std::atomic<int> state_{kAwake};
  std::atomic<bool> stopped_{false};
  int fd_;
};

// A lane's queue of what its own node wants it to do. Thread-safe; first in, first out, also
// between the three sorts of items, which is what makes an actor see its routes before the
// envelopes that need them.
class ZmqInbox {
 public:
  using Item = std::variant<Envelope, Outbox::Route, std::unique_ptr<Actor>>;

  ZmqInbox();

  // After Close() the item is dropped.
  void Put(Item item);
  std::vector<Item> TakeAll();
  // Drops what is there and all that will come.
  void Close();

  // Woken by every Put. Shared with the windows of the lane's peers, which outlive the lane.
  const std::shared_ptr<ZmqWaker>& waker() const { return waker_; }

 private:
  std::shared_ptr<ZmqWaker> waker_;
  std::mutex mutex_;
  std::vector<Item> items_;
  bool closed_ = false;
};

}  // namespace poseidon
