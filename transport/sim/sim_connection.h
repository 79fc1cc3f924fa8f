// SimConnection: what a simulated node knows of a connection that it wants to hear the loss of
// (Outbox::Route::tells_loss).
#pragma once

#include <optional>

#include "core/time.h"
#include "transport/address.h"
#include "transport/sim/sim_lane.h"

namespace poseidon {

// A value.
class SimConnection {
 public:
  SimConnection(int own_lane, const Address& peer, SimLane to, Duration lost_after)
      : lane_(own_lane), peer_(peer), to_(to), lost_after_(lost_after) {}

  int lane() const { return lane_; }             // the one that hears of the loss
  const Address& peer() const { return peer_; }  // what it calls the other end
  SimLane to() const { return to_; }

  // An envelope has arrived: whatever was dropped before has been sent again.
  void Arrived() {
    connected_ = true;
    unconfirmed_since_.reset();
  }
  // One has been dropped. Returns when to ask Lost, if that is to be done.
  std::optional<Time> Dropped(Time now) {
    if (!connected_ || unconfirmed_since_) return std::nullopt;
    unconfirmed_since_ = now;
    return now + lost_after_;
  }
  // Whether it is lost now. Once it is, it has to be made anew.
  bool Lost(Time now) {
    if (!unconfirmed_since_ || now - *unconfirmed_since_ < lost_after_) return false;
    connected_ = false;
    unconfirmed_since_.reset();
    return true;
  }

 private:
  int lane_;
  Address peer_;
  SimLane to_;
  Duration lost_after_;
  bool connected_ = false;
  std::optional<Time> unconfirmed_since_;
};

}  // namespace poseidon
