// SimTiers: the uplinks between a simulated machine's link and another's, where machines form a
// tree of groups (racks, data centers). The model is described in transport/sim/sim_runtime.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/time.h"
#include "transport/sim/sim_runtime.h"

namespace poseidon {

// Time of `bytes` at a link, rounded up: no link is ever faster than its goodput. The product is
// exact up to 9 MB, and both operations are rounded alike on all machines.
inline Duration TransferTime(int64_t bytes, double goodput_bytes_per_second) {
  const double nanoseconds = static_cast<double>(bytes) * 1e9 / goodput_bytes_per_second;
  const auto whole = static_cast<int64_t>(nanoseconds);
  return Duration(static_cast<double>(whole) < nanoseconds ? whole + 1 : whole);
}

// Not thread-safe.
class SimTiers {
 public:
  // A direction of a group's uplink.
  using Link = uint32_t;

  struct Passage {
    Time start;   // when it is taken up
    Time next;    // its first byte can enter the next link, or the machine
    Time all_in;  // the last byte can
  };

  // As SimRuntime::AddGroup.
  int AddGroup(const UplinkSpec& uplink, int parent);
  int group_count() const { return static_cast<int>(groups_.size()); }

  // The first link from a machine of `from` to one of `to`, which is another group.
  Link First(int from, int to) const;
  // The one behind `link`; none: the machine.
  std::optional<Link> Next(Link link, int to) const;
  // An envelope whose first byte is there `now`, and its last one at `all_in`, passes the link.
  // Calls come in the order of their times.
  Passage Pass(Link link, int64_t bytes, Time now, Time all_in);

 private:
  struct Group {
    UplinkSpec uplink;
    int parent;
    int depth;  // groups around it
    // When what has come so far, upwards and downwards, has passed.
    Time free[2] = {};
  };

  static Link Up(int group) { return static_cast<Link>(group) * 2; }
  static Link Down(int group) { return Up(group) + 1; }
  const Group& At(int group) const { return groups_[static_cast<size_t>(group)]; }
  int Depth(int group) const { return group == kNoGroup ? 0 : At(group).depth + 1; }
  // The group around `group`, or itself, that has `depth` others around it.
  int Around(int group, int depth) const;
  // From a switch in `group` on; `to` is not that group.
  Link Onwards(int group, int to) const;

  std::vector<Group> groups_;
};

}  // namespace poseidon
