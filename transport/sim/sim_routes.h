// SimRoutes: where one simulated node can reach the lanes of the others.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "transport/address.h"
#include "transport/sim/sim_lane.h"

namespace poseidon {

class SimRoutes {
 public:
  // Replaces an earlier route to the same address.
  void Set(const Address& to, SimLane lane);
  // Nowhere if there is no route. Never resolves Role::kThisNode.
  SimLane Find(const Address& to) const;

 private:
  static constexpr int kRoles = 4;
  // Ranks over this one (and below 0) are no ranks of a real job but names that somebody made up;
  // an array indexed by them could be of any size.
  static constexpr int kLastFlatRank = 1 << 16;

  static bool Flat(const Address& to);
  static size_t TableOf(const Address& to);

  // Address to lane: an array by lane and role of arrays by rank, four bytes a route.
  std::vector<std::vector<SimLane>> tables_;
  std::map<Address, SimLane> others_;
};

}  // namespace poseidon
