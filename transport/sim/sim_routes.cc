#include "transport/sim/sim_routes.h"

namespace poseidon {

bool SimRoutes::Flat(const Address& to) {
  return to.lane >= SimLane::kFirst && to.lane <= SimLane::kLast && to.node.rank >= 0 &&
         to.node.rank <= kLastFlatRank;
}

size_t SimRoutes::TableOf(const Address& to) {
  return static_cast<size_t>(to.lane - SimLane::kFirst) * kRoles +
         static_cast<size_t>(to.node.role);
}

void SimRoutes::Set(const Address& to, SimLane lane) {
  if (!Flat(to)) {
    others_[to] = lane;
    return;
  }
  const size_t index = TableOf(to);
  if (tables_.size() <= index) tables_.resize(index + 1);
  std::vector<SimLane>& table = tables_[index];
  const size_t rank = static_cast<size_t>(to.node.rank);
  if (table.size() <= rank) table.resize(rank + 1);
  table[rank] = lane;
}

SimLane SimRoutes::Find(const Address& to) const {
  if (!Flat(to)) {
    const auto found = others_.find(to);
    return found == others_.end() ? SimLane() : found->second;
  }
  const size_t index = TableOf(to);
  if (index >= tables_.size()) return SimLane();
  const size_t rank = static_cast<size_t>(to.node.rank);
  return rank < tables_[index].size() ? tables_[index][rank] : SimLane();
}

}  // namespace poseidon
