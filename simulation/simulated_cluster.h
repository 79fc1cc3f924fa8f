// SimulatedCluster: a whole job in virtual time. The scheduler, server and worker actors are those
// that the daemons run; so are the rules by which a worker's program trains
// (client/worker_protocol.h). Only its computing is made up (simulation/simulated_trainer.h), and
// the network is SimRuntime's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "client/sync/syncer.h"
#include "core/trace.h"
#include "planner/job_plan.h"
#include "proto/job.pb.h"
#include "scheduler/journal/job_state.h"
#include "simulation/cluster_layout.h"
#include "simulation/simulated_program.h"
#include "simulation/simulated_trainer.h"
#include "transport/membership/member.h"
#include "transport/membership/shared_messages.h"
#include "transport/sim/sim_runtime.h"

namespace poseidon {

struct SimulatedClusterOptions {
  // Checked (proto/job_config.h), but for `training`, which is not read.
  Job job;
  uint64_t job_fingerprint = 1;
  uint64_t epoch = 0x5eed;  // of the first view; any but 0
  TrainingWork work;
  ClusterLayout layout;  // ColocatedLayout, SeparateLayout, or either with changes
  SimOptions network;
  // Asked once, when the workers have measured their layers, which they do under policy TIME. May
  // be empty.
  Replanner replan;
  // Of the scheduler; empty: PlanJob.
  JobPlanner planner;
  // Of the scheduler's journal, in a job with `recovery`.
  SimulatedDisk disk;
  // Events that each node's trace keeps; 0: no traces.
  size_t trace_events = 0;
};

// For SimOptions.processing: a lane is busy for `cost` with each message from another node.
std::function<Duration(const Envelope&)> MessageProcessing(Duration cost);

// Not thread-safe; different clusters are independent.
class SimulatedCluster {
 public:
  // Throws ConfigError if the timeline's layers are not the model's.
  explicit SimulatedCluster(SimulatedClusterOptions options);
  ~SimulatedCluster();
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  // Runs until every process has ended or been killed and, unless the job has ended, nobody is to
  // be started again; or until `deadline`. True in the first case. May be called again.
  bool Run(Time deadline);

  // `id` is what a process asked to be, as in the layout.
  void KillAt(Time when, const NodeId& id);
  // Where the process was killed, or has ended because the job went on without it: another one that
  // wants the same rank is started on the same machine.
  // `supervised`: by somebody who has seen the other one die. Another scheduler has the address of
  // the one before, and what that has written down.
  void RestartAt(Time when, const NodeId& id, bool supervised);
  SimNode process(const NodeId& id) const { return At(id).process; }
  // For other faults and for strangers on the network.
  SimRuntime& runtime() { return runtime_; }
  const SimRuntime& runtime() const { return runtime_; }

  size_t nodes() const { return nodes_.size(); }
  // In the layout's order.
  const NodeRecord& node(size_t index) const { return nodes_[index].record; }
  const NodeRecord& node(const NodeId& id) const { return At(id).record; }
  // Empty if there are no traces.
  std::deque<Trace::Event> events(const NodeId& id) const;

  const SchedulerRecord& scheduler() const { return scheduler_; }
  // These are of the worker that asked for `rank`.
  // Of all its processes.
  const TrainerRecord& trainer(int rank) const { return At({Role::kWorker, rank}).trainer; }
  // Null before the worker has the plan. Outlives a worker that was killed.
  const SyncContext* context(int rank) const;
  // A layer's parameters as the worker has them.
  std::span<const float> values(int rank, int layer) const;

 private:
  struct Node {
    SimNode process = 0;
    NodeRecord record;
    uint64_t replaces = 0;  // incarnation of the process before, if whoever started it knows it
    std::unique_ptr<Trace> trace;
    // What workers write down.
    TrainerRecord trainer;
  };

  // The index of the first node that asked to be `id`; there must be one.
  size_t IndexOf(const NodeId& id) const;
  const Node& At(const NodeId& id) const { return nodes_[IndexOf(id)]; }
  void Start(size_t index);
  // What the job's schedulers so far have written down; the next one begins.
  JobState BeginTerm();
  void StartScheduler(Node& node, const NodeSpec& spec);
  // Where all look for the scheduler from now on.
  void RouteToScheduler(SimNode scheduler);
  void StartServer(Node& node, const NodeSpec& spec);
  void StartWorker(Node& node, const NodeSpec& spec);
  // That of its present process; never 0.
  static uint64_t IncarnationOf(const Node& node) {
    return static_cast<uint64_t>(node.process) + 1;
  }
  MemberOptions MakeMemberOptions(const Node& node, const NodeSpec& spec) const;
  ProgramFrame MakeFrame(Node& node);
  void OnGone();
  bool IsOver() const;

  SimulatedClusterOptions options_;
  std::deque<Node> nodes_;
  SimRuntime runtime_;              // its envelopes and actors know the nodes
  std::map<NodeId, size_t> index_;  // in nodes_
  std::shared_ptr<SharedMessages> shared_;
  SchedulerRecord scheduler_;
  size_t living_ = 0;
  int restarts_ = 0;  // that are to come
};

}  // namespace poseidon
