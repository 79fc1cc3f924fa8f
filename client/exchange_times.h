// ExchangeTimes: how long the exchange of an iteration takes, from its first gradient ready to the
// last layer fresh, which is in the next iteration's forward pass; and for how much of it computing
// stood still.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.h"

namespace poseidon {

// A value; the training thread's.
class ExchangeTimes {
 public:
  // A gradient of `iteration` is ready. The first one of an iteration closes the exchange before.
  void GradientReady(int64_t iteration, Time now) {
    if (iteration == iteration_) return;
    Close();
    iteration_ = iteration;
    begin_ = end_ = now;
    exposed_ = {};
  }
  // Part of a bucket has become fresh.
  void Fresh(Time happened) { end_ = std::max(end_, happened); }
  // So long computing stood still because a layer was not fresh where it computes: in the host's
  // memory, or on the device.
  void AddExposed(Duration exposed) { exposed_ += exposed; }
  // All layers are fresh, and what devices stood still for them is known.
  void Close() {
    if (iteration_ < 0) return;  // the initial values are no exchange
    // What devices stand still for ends with a copy, after the exchange between the hosts.
    last_ = {std::max(end_ - begin_, exposed_), exposed_};
    total_.exchange += last_.exchange;
    total_.exposed += last_.exposed;
    iteration_ = -1;
    exposed_ = {};
  }

  struct Times {
    Duration exchange{};
    Duration exposed{};
  };
  // The newest exchange that is closed.
  const Times& last() const { return last_; }
  // The sum of all that are closed.
  const Times& total() const { return total_; }

 private:
  int64_t iteration_ = -1;  // of the exchange that is not closed; -1: there is none
  Time begin_{};
  Time end_{};
  Duration exposed_{};
  Times last_;
  Times total_;
};

}  // namespace poseidon
