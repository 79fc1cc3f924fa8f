// Mailbox: the application lane of a node on ZmqRuntime. Actors' envelopes for the program that
// runs the node wait here.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "core/time.h"
#include "transport/envelope.h"

namespace poseidon {

// Thread-safe, unbounded (its senders are the node's own actors, which are driven by the program
// that reads it), first in, first out.
class Mailbox {
 public:
  void Put(Envelope envelope);
  // The next envelope, or nullopt when `timeout` has passed without one.
  std::optional<Envelope> Take(Duration timeout);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Envelope> envelopes_;
};

}  // namespace poseidon
