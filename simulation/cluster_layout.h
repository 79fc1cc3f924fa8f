// Which processes a simulated job consists of, and on which machines they run.
#pragma once

#include <memory>
#include <vector>

#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"
#include "transport/address.h"
#include "transport/sim/sim_runtime.h"

namespace poseidon {

// One process. What is not set is as in a job whose nodes are all started right.
struct NodeSpec {
  // Its rank is the one it asks for; -1 asks for any. The scheduler's is 0.
  NodeId id;
  int machine = 0;            // index in ClusterLayout::machines
  Time start{};               // when the process begins
  double compute_factor = 1;  // a worker computes so many times as long
  uint64_t job_fingerprint = 1;
  // What a worker declares, if not the cluster's model.
  std::shared_ptr<const ModelSpec> model;
  wire::TrainingInputs inputs;
};

// Machines behind one uplink.
struct GroupSpec {
  UplinkSpec uplink;
  int parent = kNoGroup;  // index of an earlier one
};

struct ClusterLayout {
  std::vector<NicSpec> machines;
  std::vector<GroupSpec> groups;
  // By machine, index in `groups`; a machine beyond its end is in none.
  std::vector<int> group_of;
  std::vector<NodeSpec> nodes;

  // Index in `nodes` of the first that asks to be `id`; there must be one.
  size_t IndexOf(const NodeId& id) const;
};

// Makes a worker and its machine as the deviation says, which is of a checked job on `network`: it
// computes so many times as long as before, and its machine's link is what is said of it, if any
// is.
void Deviate(const Deviation& deviation, const Network& network, ClusterLayout& layout);

// Worker i and server i share machine i, as in the paper; what there is more of, workers or
// servers, has machines of its own, and so has the scheduler, the last. `nic` is every machine's.
//
// The job's tiers group consecutive machines, each tier the groups of the one before; the
// scheduler's machine is outside of all groups. Throws ConfigError if a tier is malformed.
ClusterLayout ColocatedLayout(const Job& job, const NicSpec& nic);
// Likewise, but every process has a machine of its own: workers first, then servers, then the
// scheduler.
ClusterLayout SeparateLayout(const Job& job, const NicSpec& nic);

}  // namespace poseidon
