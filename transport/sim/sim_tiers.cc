#include "transport/sim/sim_tiers.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "core/error.h"

namespace poseidon {

int SimTiers::AddGroup(const UplinkSpec& uplink, int parent) {
  if (!(uplink.goodput_bytes_per_second > 0)) {
    throw ConfigError("simulation: an uplink's goodput is " +
                      std::to_string(uplink.goodput_bytes_per_second) +
                      " bytes/s; it must be positive");
  }
  if (uplink.latency < Duration::zero()) {
    throw ConfigError("simulation: an uplink's latency is negative");
  }
  CHECK(parent == kNoGroup || (parent >= 0 && parent < group_count())) << "no group " << parent;
  groups_.push_back({uplink, parent, Depth(parent)});
  return group_count() - 1;
}

int SimTiers::Around(int group, int depth) const {
  while (At(group).depth > depth) group = At(group).parent;
  return group;
}

// Down if `to` is inside of `group`, else up.
SimTiers::Link SimTiers::Onwards(int group, int to) const {
  const int depth = Depth(group);
  if (Depth(to) > depth) {
    const int inside = Around(to, depth);
    if (At(inside).parent == group) return Down(inside);
  }
  return Up(group);
}

SimTiers::Link SimTiers::First(int from, int to) const { return Onwards(from, to); }

std::optional<SimTiers::Link> SimTiers::Next(Link link, int to) const {
  const int group = static_cast<int>(link / 2);
  const int reached = link == Up(group) ? At(group).parent : group;
  if (reached == to) return std::nullopt;
  return Onwards(reached, to);
}

SimTiers::Passage SimTiers::Pass(Link link, int64_t bytes, Time now, Time all_in) {
  Group& group = groups_[link / 2];
  Time& free = group.free[link % 2];
  const Time start = std::max(now, free);
  free = start + TransferTime(bytes, group.uplink.goodput_bytes_per_second);
  const Duration latency = group.uplink.latency;
  return {start, start + latency, std::max(free, all_in) + latency};
}

}  // namespace poseidon
