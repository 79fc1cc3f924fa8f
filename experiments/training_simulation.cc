#include "experiments/training_simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "core/error.h"
#include "experiments/simulated_cluster.h"
#include "scheduler/cluster_spec.h"

namespace poseidon {
namespace {

// Bytes of data by machine, in the measured iterations.
class MachineTraffic {
 public:
  struct Bytes {
    int64_t sent = 0;
    int64_t received = 0;
  };

  MachineTraffic(const ClusterLayout& layout, const SteadyIterations& steady)
      : begin_(steady.warm_up),
        end_(steady.warm_up + steady.measured),
        machines_(layout.machines.size()) {
    for (const NodeSpec& node : layout.nodes) machine_of_[node.id] = node.machine;
  }

  void Add(const Envelope& envelope) {
    const bool data =
        envelope.to.lane >= kFirstDataLane && envelope.to.node.role != Role::kThisNode;
    // Messages of iteration i are about gradients of i, or values for the forward pass of i; in
    // both ways all that are measured have been sent when the job ends.
    if (!data || envelope.iteration < begin_ || envelope.iteration >= end_) return;
    const int from = machine_of_.at(envelope.from.node);
    const int to = machine_of_.at(envelope.to.node);
    if (from == to) return;
    const auto size = static_cast<int64_t>(envelope.body.size());
    machines_[from].sent += size;
    machines_[to].received += size;
  }

  // Of the machine with most.
  Bytes Busiest() const {
    return *std::max_element(
        machines_.begin(), machines_.end(),
        [](const Bytes& a, const Bytes& b) { return a.sent + a.received < b.sent + b.received; });
  }

 private:
  int64_t begin_;
  int64_t end_;
  std::map<NodeId, int> machine_of_;
  std::vector<Bytes> machines_;
};

// Nobody dies here, however long a slow network takes; heartbeats would only be events to simulate.
Job WithoutDeadlines(Job job) {
  constexpr double kNever = 1e6;  // seconds; longer than any training that is worth simulating
  job.mutable_cluster()->set_join_deadline_seconds(kNever);
  job.mutable_communication()->set_heartbeat_interval_seconds(kNever / 10);
  job.mutable_communication()->set_heartbeat_deadline_seconds(kNever);
  job.mutable_communication()->set_stall_deadline_seconds(kNever);
  return job;
}

// A net without a solver has no rule; phantoms are updated by any.
ModelSpec WithUpdateRule(ModelSpec model) {
  if (!model.update_rule().lr_policy().empty()) return model;
  model.mutable_update_rule()->set_type("SGD");
  model.mutable_update_rule()->set_lr_policy("fixed");
  model.mutable_update_rule()->set_base_lr(1);
  return model;
}

SimulatedClusterOptions OptionsFor(const Job& job, const ModelSpec& model, int64_t iterations) {
  const ClusterSpec spec = ClusterOf(job);
  NicSpec nic;
  nic.goodput_bytes_per_second = spec.goodput;
  nic.latency = Seconds(spec.latency);
  nic.send_buffer_bytes = spec.send_buffer_bytes;
  SimulatedClusterOptions options;
  options.job = WithoutDeadlines(job);
  options.layout = spec.colocated ? ColocatedLayout(job, nic) : SeparateLayout(job, nic);
  options.work.model = WithUpdateRule(model);
  options.work.iterations = iterations;
  const std::vector<LayerTime> times = LayerTimes(model, spec.flops);
  for (int l = 0; l < model.layers_size(); ++l) {
    options.work.timeline.steps.push_back(
        {l, Seconds(times[l].forward), Seconds(times[l].backward)});
  }
  return options;
}

Duration ComputeTime(const ComputeTimeline& timeline) {
  Duration sum{};
  for (const ComputeStep& step : timeline.steps) sum += step.forward + step.backward;
  return sum;
}

void ThrowIfFailed(const SimulatedCluster& cluster) {
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.end && node.end->exit_code() == 0) continue;
    throw Error(ExitCode::kFailure, "the simulated training failed at " + node.id.ToString() +
                                        (node.end ? ": " + node.end->reason() : ""));
  }
}

}  // namespace

int WarmUpIterations(Communication::Policy policy) {
  const bool pairs = policy == Communication::ALL_HALVING_DOUBLING ||
                     policy == Communication::ALL_TORUS || policy == Communication::TIME;
  return pairs ? 20 : 2;
}

SimulatedTraining SimulateTraining(const Job& job, const ModelSpec& model,
                                   const SteadyIterations& steady) {
  const int iterations = steady.warm_up + steady.measured;
  SimulatedClusterOptions options = OptionsFor(job, model, iterations);
  MachineTraffic traffic(options.layout, steady);
  // The network's only sight of every message.
  options.network.processing = [&traffic, process = MessageProcessing(Seconds(
                                              ClusterOf(job).message_cost))](const Envelope& e) {
    traffic.Add(e);
    return process(e);
  };
  SimulatedCluster cluster(options);
  if (!cluster.Run(Time::max())) throw Error(ExitCode::kFailure, "the simulated training hangs");
  ThrowIfFailed(cluster);

  SimulatedTraining result;
  result.plan = cluster.scheduler().plan->plan();
  result.compute = ToSeconds(ComputeTime(options.work.timeline));
  const int workers = job.cluster().workers();
  double busy = 0;  // seconds of all workers
  double all = 0;
  for (int rank = 0; rank < workers; ++rank) {
    const std::vector<IterationTimes>& times = cluster.trainer(rank).iterations;
    all += ToSeconds(times[iterations - 1].end - times[steady.warm_up - 1].end);
    for (int i = steady.warm_up; i < iterations; ++i) {
      busy += ToSeconds(times[i].end - times[i].begin - times[i].exposed);
    }
  }
  result.iteration = all / steady.measured / workers;
  result.busy = all > 0 ? busy / all : 1;
  const MachineTraffic::Bytes busiest = traffic.Busiest();
  result.bytes_sent = static_cast<double>(busiest.sent) / steady.measured;
  result.bytes_received = static_cast<double>(busiest.received) / steady.measured;
  return result;
}

}  // namespace poseidon
