// DroppedFrames: the data frames that an actor threw away. All are counted; of those that no
// correct peer would send, the first of each peer is logged, too.
//
//   if (envelope.epoch != epoch) return dropped_.AddStale();
//   if (!Fits(envelope)) return dropped_.AddInvalid(envelope, "for a KV pair that is not here");
//
// One thread adds. The count is its owner's and may be one for several lanes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "transport/envelope.h"
#include "transport/logged_peers.h"

namespace poseidon {

class DroppedFrames {
 public:
  // `count` outlives this.
  explicit DroppedFrames(std::atomic<int64_t>& count) : count_(count) {}

  // A frame that is late or came before, as happens on any network.
  void AddStale() { ++count_; }
  // A frame that can't be: "dropped a frame <why>: <the frame>" is logged once for each peer.
  void AddInvalid(const Envelope& envelope, std::string_view why);

 private:
  std::atomic<int64_t>& count_;
  LoggedPeers<NodeId> logged_;
};

}  // namespace poseidon
