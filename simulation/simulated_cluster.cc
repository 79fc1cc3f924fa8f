#include "simulation/simulated_cluster.h"

#include <glog/logging.h>

#include "client/worker_control.h"
#include "core/error.h"
#include "proto/job_config.h"
#include "proto/lanes.h"
#include "scheduler/scheduler_actor.h"
#include "server/server_control.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// A process that has ended takes a while to be gone, so that what it has just sent still leaves.
constexpr Duration kLinger = Seconds(1);

void CheckTimeline(const TrainingWork& work) {
  int next = 0;
  for (const ComputeStep& step : work.timeline.steps) {
    if (step.layer && *step.layer != next++) {
      throw ConfigError("a simulated timeline has layer " + std::to_string(*step.layer) +
                        " in the place of layer " + std::to_string(next - 1));
    }
  }
  if (next != work.model.layers_size()) {
    throw ConfigError("a simulated timeline has " + std::to_string(next) +
                      " layers with parameters, its model has " +
                      std::to_string(work.model.layers_size()));
  }
}

std::string HostOf(const NodeSpec& spec) { return "machine" + std::to_string(spec.machine); }

}  // namespace

std::function<Duration(const Envelope&)> MessageProcessing(Duration cost) {
  return [cost](const Envelope& envelope) {
    return envelope.to.node.role == Role::kThisNode ? Duration::zero() : cost;
  };
}

SimulatedCluster::SimulatedCluster(SimulatedClusterOptions options)
    : options_(std::move(options)),
      runtime_(options_.network),
      shared_(std::make_shared<SharedMessages>()) {
  CheckTimeline(options_.work);
  const TrainingWork& work = options_.work;
  options_.work.model.set_iterations(work.tells_iterations ? work.iterations : 0);
  const ClusterLayout& layout = options_.layout;
  for (const GroupSpec& group : layout.groups) runtime_.AddGroup(group.uplink, group.parent);
  for (size_t machine = 0; machine < layout.machines.size(); ++machine) {
    const bool grouped = machine < layout.group_of.size();
    runtime_.AddMachine(layout.machines[machine], grouped ? layout.group_of[machine] : kNoGroup);
  }
  for (const NodeSpec& spec : layout.nodes) {
    Node& node = nodes_.emplace_back();
    node.record.id = spec.id;
    index_.try_emplace(spec.id, nodes_.size() - 1);
    // The scheduler tells who a node is; until then it has no rank.
    const int rank = spec.id.role == Role::kScheduler ? 0 : -1;
    node.process = runtime_.AddNode({spec.id.role, rank}, spec.machine);
    if (options_.trace_events > 0) {
      node.trace = std::make_unique<Trace>(spec.id.ToString(), options_.trace_events);
    }
    runtime_.At(spec.start, [this, index = nodes_.size() - 1] { Start(index); });
  }
  living_ = nodes_.size();
}

SimulatedCluster::~SimulatedCluster() = default;

size_t SimulatedCluster::IndexOf(const NodeId& id) const {
  const auto found = index_.find(id);
  CHECK(found != index_.end()) << "no process that asked to be " << id.ToString();
  return found->second;
}

bool SimulatedCluster::Run(Time deadline) {
  if (!IsOver()) runtime_.Run(deadline);
  return IsOver();
}

bool SimulatedCluster::IsOver() const {
  // Where all are dead at once the job goes on with those that are started again.
  return living_ == 0 && (restarts_ == 0 || node({Role::kScheduler, 0}).end);
}

void SimulatedCluster::Start(size_t index) {
  Node& node = nodes_[index];
  if (node.record.killed) return;
  const NodeSpec& spec = options_.layout.nodes[index];
  switch (spec.id.role) {
    case Role::kScheduler:
      return StartScheduler(node, spec);
    case Role::kServer:
      return StartServer(node, spec);
    case Role::kWorker:
      return StartWorker(node, spec);
    case Role::kThisNode:
      LOG(FATAL) << "a process needs a role";
  }
}

JobState SimulatedCluster::BeginTerm() {
  JobState past;
  for (const wire::JournalRecord& record : scheduler_.journal) past.Apply(record);
  if (scheduler_.journal.empty()) {
    scheduler_.journal.emplace_back().mutable_job()->set_base(options_.epoch);
  }
  scheduler_.journal.emplace_back().mutable_term()->set_number(past.term + 1);
  return past;
}

void SimulatedCluster::StartScheduler(Node& node, const NodeSpec& spec) {
  SchedulerOptions scheduler;
  scheduler.job = options_.job;
  scheduler.job_fingerprint = options_.job_fingerprint;
  scheduler.epoch = options_.epoch;
  scheduler.own_hosts = {HostOf(spec)};
  scheduler.logs_members = false;
  if (options_.planner) scheduler.planner = options_.planner;
  const bool journals = options_.job.recovery().mode() != Recovery::NONE;
  if (journals) scheduler.journal = BeginTerm();
  int workers = journals ? options_.job.cluster().workers() : 0;
  if (journals && scheduler.journal->plan) workers = scheduler.journal->plan->plan().workers();
  runtime_.Attach(node.process, kApplicationLane,
                  std::make_unique<SimulatedScheduler>(MakeFrame(node), &scheduler_,
                                                       options_.replan, workers, options_.disk));
  runtime_.Attach(node.process, kControlLane, MakeScheduler(std::move(scheduler)));
}

void SimulatedCluster::RouteToScheduler(SimNode scheduler) {
  for (const Node& node : nodes_) {
    if (node.process == scheduler || node.record.killed) continue;
    for (const int lane : {kControlLane, kHeartbeatLane}) {
      runtime_.SetRoute(node.process, {{Role::kScheduler, 0}, lane},
                        runtime_.endpoint(scheduler, lane));
    }
  }
}

void SimulatedCluster::StartServer(Node& node, const NodeSpec& spec) {
  ServerOptions server;
  server.member = MakeMemberOptions(node, spec);
  server.stall_deadline = StallDeadline(options_.job);
  server.phantom = !options_.work.arithmetic.gradient;
  server.trace = node.trace.get();
  runtime_.Attach(node.process, kApplicationLane,
                  std::make_unique<SimulatedServer>(MakeFrame(node)));
  runtime_.Attach(node.process, kControlLane, std::make_unique<ServerControl>(std::move(server)));
}

void SimulatedCluster::StartWorker(Node& node, const NodeSpec& spec) {
  WorkerOptions worker;
  worker.member = MakeMemberOptions(node, spec);
  worker.stall_deadline = StallDeadline(options_.job);
  worker.phantom = !options_.work.arithmetic.gradient;
  worker.count_peers = false;
  worker.trace = node.trace.get();
  worker.measured_distances = MeasuredDistances(options_.job);
  worker.workers = options_.job.cluster().workers();
  worker.recovers = worker.member.scheduler_deadline.has_value();
  SimulatedTrainer::Options trainer;
  trainer.work = &options_.work;
  trainer.inputs = spec.inputs;
  trainer.model = spec.model != nullptr ? spec.model.get() : &options_.work.model;
  trainer.communication = &options_.job.communication();
  trainer.record = &node.trainer;
  trainer.cluster = ClusterOf(options_.job);
  // Of phantoms the trainer has the time that this takes; what is computed, lanes compute.
  worker.devices_update = worker.phantom && trainer.cluster.devices_update;
  trainer.compute_factor = spec.compute_factor;
  trainer.disturbance = ComputeDisturbance(options_.job.cluster().disturbance(),
                                           options_.job.cluster().devices_per_worker(),
                                           options_.job.communication().local_steps());
  trainer.measure = options_.job.communication().policy() == Communication::TIME;
  trainer.trace = node.trace.get();
  const auto plans = std::make_shared<PlanHandover>();
  runtime_.Attach(node.process, kApplicationLane,
                  std::make_unique<SimulatedTrainer>(MakeFrame(node), plans, trainer));
  runtime_.Attach(node.process, kControlLane,
                  std::make_unique<WorkerControl>(std::move(worker), plans));
}

MemberOptions SimulatedCluster::MakeMemberOptions(const Node& node, const NodeSpec& spec) const {
  const SimNode scheduler = process({Role::kScheduler, 0});
  MemberOptions member;
  member.role = spec.id.role;
  member.wanted_rank = spec.id.rank;
  member.host = HostOf(spec);
  member.pid = node.process;
  const int lanes = kFirstDataLane + OfferedLanes(options_.job, options_.job.cluster().cores());
  for (int lane = 0; lane < lanes; ++lane) {
    member.endpoints.push_back(runtime_.endpoint(node.process, lane));
  }
  member.scheduler_control_endpoint = runtime_.endpoint(scheduler, kControlLane);
  member.scheduler = member.scheduler_control_endpoint;
  member.scheduler_heartbeat_endpoint = runtime_.endpoint(scheduler, kHeartbeatLane);
  member.incarnation = IncarnationOf(node);
  member.replaces = node.replaces;
  member.scheduler_deadline = SchedulerDeadline(options_.job);
  member.job_fingerprint = spec.job_fingerprint;
  member.join_deadline = Seconds(options_.job.cluster().join_deadline_seconds());
  member.heartbeat = TimingOf(options_.job);
  member.shared = shared_;
  return member;
}

ProgramFrame SimulatedCluster::MakeFrame(Node& node) {
  return ProgramFrame(&node.record, [this, &node] {
    // By then another process may have its place.
    runtime_.At(runtime_.now() + kLinger, [this, ended = node.process] { runtime_.Kill(ended); });
    OnGone();
  });
}

void SimulatedCluster::OnGone() {
  --living_;
  if (IsOver()) runtime_.Halt();
}

void SimulatedCluster::RestartAt(Time when, const NodeId& id, bool supervised) {
  const size_t index = IndexOf(id);
  ++restarts_;
  runtime_.At(when, [this, index, supervised] {
    --restarts_;
    Node& node = nodes_[index];
    const bool given_up =
        node.record.end && node.record.end->exit_code() == static_cast<int>(ExitCode::kGivenUp);
    if (!node.record.killed && !given_up) {
      if (IsOver()) runtime_.Halt();
      return;
    }
    const NodeSpec& spec = options_.layout.nodes[index];
    node.replaces = supervised ? IncarnationOf(node) : 0;
    const bool scheduler = spec.id.role == Role::kScheduler;
    node.process = runtime_.AddNode({spec.id.role, scheduler ? 0 : -1}, spec.machine);
    if (scheduler) {
      // After what has been started at the same moment, and knows the address of the one before.
      runtime_.At(runtime_.now(), [this, process = node.process] { RouteToScheduler(process); });
    }
    node.record = NodeRecord();
    node.record.id = spec.id;
    ++living_;
    Start(index);
  });
}

void SimulatedCluster::KillAt(Time when, const NodeId& id) {
  Node& node = nodes_[IndexOf(id)];
  runtime_.At(when, [this, &node] {
    if (node.record.killed || node.record.end) return;
    node.record.killed = true;
    runtime_.Kill(node.process);
    OnGone();
  });
}

std::deque<Trace::Event> SimulatedCluster::events(const NodeId& id) const {
  const Trace* trace = At(id).trace.get();
  return trace == nullptr ? std::deque<Trace::Event>() : trace->events();
}

const SyncContext* SimulatedCluster::context(int rank) const { return trainer(rank).context.get(); }

std::span<const float> SimulatedCluster::values(int rank, int layer) const {
  return context(rank)->memory->values(layer);
}

}  // namespace poseidon
