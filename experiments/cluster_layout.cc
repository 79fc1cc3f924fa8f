#include "experiments/cluster_layout.h"

#include <glog/logging.h>

#include <algorithm>

namespace poseidon {
namespace {

NodeSpec Node(Role role, int rank, int machine) {
  NodeSpec node;
  node.id = {role, rank};
  node.machine = machine;
  return node;
}

// Server i is on machine first_server + i.
ClusterLayout MakeLayout(const Job& job, const NicSpec& nic, int first_server) {
  const int workers = job.cluster().workers();
  const int servers = job.cluster().servers();
  const int scheduler_machine = std::max(workers, first_server + servers);
  ClusterLayout layout;
  layout.machines.assign(scheduler_machine + 1, nic);
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

ClusterLayout ColocatedLayout(const Job& job, const NicSpec& nic) {
  return MakeLayout(job, nic, 0);
}

ClusterLayout SeparateLayout(const Job& job, const NicSpec& nic) {
  return MakeLayout(job, nic, job.cluster().workers());
}

}  // namespace poseidon
