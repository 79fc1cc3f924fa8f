// Which processes a simulated job consists of, and on which machines they run.
#pragma once

#include <memory>
#include <vector>

#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "transport/address.h"
#include "transport/sim_runtime.h"

namespace poseidon {

// One process. What is not set is as in a job whose nodes are all started right.
struct NodeSpec {
  // Its rank is the one it asks for; -1 asks for any. The scheduler's is 0.
  NodeId id;
  int machine = 0;  // index in ClusterLayout::machines
  Time start{};     // when the process begins
  uint64_t job_fingerprint = 1;
  // What a worker declares, if not the cluster's model.
  std::shared_ptr<const ModelSpec> model;
};

struct ClusterLayout {
  std::vector<NicSpec> machines;
  std::vector<NodeSpec> nodes;

  // Index in `nodes` of the first that asks to be `id`; there must be one.
  size_t IndexOf(const NodeId& id) const;
};

// Worker i and server i share machine i, as in the paper; the scheduler has a machine of its own,
// the last. `nic` is every machine's.
ClusterLayout ColocatedLayout(const Job& job, const NicSpec& nic);
// Every process has a machine of its own: workers first, then servers, then the scheduler.
ClusterLayout SeparateLayout(const Job& job, const NicSpec& nic);

}  // namespace poseidon
