#include "simulation/cluster_layout.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "core/units.h"

namespace poseidon {
namespace {

double Goodput(const std::string& bandwidth, const Network& network) {
  constexpr double kBitsPerByte = 8;
  return static_cast<double>(ParseBitRate(bandwidth)) / kBitsPerByte * network.goodput_share();
}

NodeSpec Node(Role role, int rank, int machine) {
  NodeSpec node;
  node.id = {role, rank};
  node.machine = machine;
  return node;
}

// The outermost tier's groups come first, for a group names its parent.
void AddGroups(const Network& network, int machines, ClusterLayout& layout) {
  // By tier: machines behind one uplink. Groups above hold more than there are machines at some
  // point; then there is one.
  std::vector<int64_t> sizes;
  int64_t size = 1;
  for (const Tier& tier : network.tier()) {
    size = std::min<int64_t>(size * tier.members(), machines);
    sizes.push_back(size);
  }
  int64_t around = 0;  // machines of a group of the tier above; 0: there is none
  int first_around = kNoGroup;
  for (int t = network.tier_size() - 1; t >= 0; --t) {
    const Tier& tier = network.tier(t);
    UplinkSpec uplink;
    uplink.goodput_bytes_per_second = Goodput(tier.bandwidth(), network);
    uplink.latency = ParseDuration(tier.latency());
    const int first = static_cast<int>(layout.groups.size());
    for (int64_t machine = 0; machine < machines; machine += sizes[t]) {
      const int parent = around == 0 ? kNoGroup : first_around + static_cast<int>(machine / around);
      layout.groups.push_back({uplink, parent});
    }
    around = sizes[t];
    first_around = first;
  }
  if (around == 0) return;
  for (int machine = 0; machine < machines; ++machine) {
    layout.group_of.push_back(first_around + machine / static_cast<int>(around));
  }
}

// Server i is on machine first_server + i.
ClusterLayout MakeLayout(const Job& job, const NicSpec& nic, int first_server) {
  const int workers = job.cluster().workers();
  const int servers = job.cluster().servers();
  const int scheduler_machine = std::max(workers, first_server + servers);
  ClusterLayout layout;
  layout.machines.assign(scheduler_machine + 1, nic);
  AddGroups(job.cluster().network(), scheduler_machine, layout);
  layout.nodes.push_back(Node(Role::kScheduler, 0, scheduler_machine));
  for (int i = 0; i < servers; ++i) {
    layout.nodes.push_back(Node(Role::kServer, i, first_server + i));
  }
  for (int i = 0; i < workers; ++i) layout.nodes.push_back(Node(Role::kWorker, i, i));
  return layout;
}

}  // namespace

size_t ClusterLayout::IndexOf(const NodeId& id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const NodeSpec& node) { return node.id == id; });
  CHECK(found != nodes.end()) << "the layout has no " << id.ToString();
  return found - nodes.begin();
}

void Deviate(const Deviation& deviation, const Network& network, ClusterLayout& layout) {
  NodeSpec& worker = layout.nodes[layout.IndexOf({Role::kWorker, deviation.worker()})];
  worker.compute_factor *= deviation.compute_factor();
  if (!deviation.has_bandwidth()) return;
  layout.machines[worker.machine].goodput_bytes_per_second =
      Goodput(deviation.bandwidth(), network);
}

ClusterLayout ColocatedLayout(const Job& job, const NicSpec& nic) {
  return MakeLayout(job, nic, 0);
}

ClusterLayout SeparateLayout(const Job& job, const NicSpec& nic) {
  return MakeLayout(job, nic, job.cluster().workers());
}

}  // namespace poseidon
