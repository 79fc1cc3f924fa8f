// LoggedPeers: of what happens again and again, whether the log has had a line about a peer. Peers
// say who they are, so no more than kMostLogged are remembered, or named; others are only counted,
// by whoever counts.
//
//   if (logged_.IsNew(address)) LOG(WARNING) << "refused " << address;
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <set>

namespace poseidon {

// More than a job has nodes on ordinary networks; and anybody may connect from millions of
// addresses of IPv6.
inline constexpr size_t kMostLogged = 1000;

template <typename Peer>
class LoggedPeers {
 public:
  // True once for each peer, as long as there are not too many.
  bool IsNew(const Peer& peer) { return peers_.size() < kMostLogged && peers_.insert(peer).second; }

 private:
  std::set<Peer> peers_;
};

}  // namespace poseidon
