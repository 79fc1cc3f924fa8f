#include "simulation/training_simulation.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "core/units.h"
#include "planner/batch_parts.h"
#include "planner/cost/cluster_model.h"
#include "planner/cost/iteration_record.h"
#include "proto/bucket.h"
#include "proto/cluster_rates.h"
#include "simulation/phantom_training.h"
#include "simulation/processing_costs.h"
#include "simulation/simulated_cluster.h"

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
    for (const NodeSpec& node : layout.nodes) {
      if (node.id.role == Role::kServer) of_servers_.push_back(node.machine);
      if (node.id.role == Role::kWorker) of_workers_.push_back(node.machine);
    }
  }

  void Add(const Envelope& envelope) {
    const bool data =
        envelope.to.lane >= kFirstDataLane && envelope.to.node.role != Role::kThisNode;
    // Messages of iteration i are about gradients of i, or values for the forward pass of i; in
    // both ways all that are measured have been sent when the job ends.
    if (!data || envelope.iteration < begin_ || envelope.iteration >= end_) return;
    const int from = MachineOf(envelope.from.node);
    const int to = MachineOf(envelope.to.node);
    if (from == to) return;
    const auto size = static_cast<int64_t>(envelope.body.size());
    machines_[from].sent += size;
    machines_[to].received += size;
  }

  // Sent and received, mean over the machines but the scheduler's, the last.
  double Mean() const {
    int64_t sum = 0;
    for (const Bytes& bytes : machines_) sum += bytes.sent + bytes.received;
    return static_cast<double>(sum) / static_cast<double>(machines_.size() - 1);
  }

  // Of the machine with most.
  Bytes Busiest() const {
    return *std::max_element(
        machines_.begin(), machines_.end(),
        [](const Bytes& a, const Bytes& b) { return a.sent + a.received < b.sent + b.received; });
  }

 private:
  int MachineOf(const NodeId& node) const {
    return (node.role == Role::kServer ? of_servers_ : of_workers_)[node.rank];
  }

  int64_t begin_;
  int64_t end_;
  // By rank.
  std::vector<int> of_servers_;
  std::vector<int> of_workers_;
  std::vector<Bytes> machines_;
};

constexpr double kNever = 1e6;  // seconds; longer than any exchange that is worth simulating

// Nobody dies here, however long a slow network takes; heartbeats would only be events to simulate.
Job WithoutDeadlines(Job job) {
  job.mutable_cluster()->set_join_deadline_seconds(kNever);
  job.mutable_communication()->set_heartbeat_interval_seconds(kNever / 10);
  job.mutable_communication()->set_heartbeat_deadline_seconds(kNever);
  job.mutable_communication()->set_stall_deadline_seconds(kNever);
  return job;
}

void Apply(const Condition& condition, const Job& job, ClusterLayout& layout) {
  for (const Deviation& deviation : condition.deviation()) {
    if (deviation.worker() < 0 || deviation.worker() >= job.cluster().workers()) {
      throw ConfigError("condition '" + condition.name() + "' is about worker " +
                        std::to_string(deviation.worker()) + "; the cluster has " +
                        std::to_string(job.cluster().workers()) + " workers, from 0 on");
    }
    CheckComputeFactor("condition '" + condition.name() + "': compute_factor",
                       deviation.compute_factor());
    Deviate(deviation, job.cluster().network(), layout);
  }
}

// The parts that workers get once it is known how fast they compute.
void BalanceParts(const ClusterLayout& layout, const ModelSpec& model, Plan& plan) {
  std::vector<double> speeds;
  for (int rank = 0; rank < plan.workers(); ++rank) {
    speeds.push_back(1 / layout.nodes[layout.IndexOf({Role::kWorker, rank})].compute_factor);
  }
  const int64_t of_a_pass = model.batch() / std::max<int64_t>(1, model.passes());
  const std::vector<int64_t> parts = DivideBatch(plan.workers() * of_a_pass, speeds);
  plan.mutable_parts()->Assign(parts.begin(), parts.end());
}

void ThrowIfFailed(const SimulatedCluster& cluster) {
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.end && node.end->exit_code() == 0) continue;
    if (node.end && node.end->exit_code() == static_cast<int>(ExitCode::kDeadlineExceeded)) {
      throw ConfigError("an exchange of the simulated training takes longer than " +
                        FormatDuration(Seconds(kNever)) +
                        "; the network is too slow for this model: check bandwidth, goodput, "
                        "latency and message_cost");
    }
    throw Error(ExitCode::kFailure, "the simulated training failed at " + node.id.ToString() +
                                        (node.end ? ": " + node.end->reason() : ""));
  }
}

// Measured iterations, of one worker or of all.
struct WorkerSeconds {
  double iterations = 0;
  double all = 0;
  double busy = 0;     // computing
  double planned = 0;  // of that, what it would have been if machines did not vary

  void Add(const WorkerSeconds& other) {
    iterations += other.iterations;
    all += other.all;
    busy += other.busy;
    planned += other.planned;
  }
  // An iteration's, as it was.
  double Each() const { return all / iterations; }
  // Of few iterations computing took a little more or less than in the mean of many: that is taken
  // back, in so far as it made them longer (a control variate). So one worker alone takes what is
  // planned.
  double EachOfMany() const {
    return all > 0 ? (all - busy / all * (busy - planned)) / iterations : 0;
  }
};

// From the end of one iteration to that of a later one.
WorkerSeconds SecondsBetween(const std::vector<IterationTimes>& times, size_t from, size_t to) {
  WorkerSeconds seconds;
  seconds.iterations = static_cast<double>(to - from);
  seconds.all = ToSeconds(times[to].end - times[from].end);
  for (size_t i = from + 1; i <= to; ++i) {
    seconds.busy += ToSeconds(times[i].end - times[i].begin - times[i].exposed);
    seconds.planned += ToSeconds(times[i].planned);
  }
  return seconds;
}

// By worker, each its measured iterations.
std::vector<WorkerSeconds> SecondsOf(const SimulatedCluster& cluster, int workers,
                                     const SteadyIterations& steady) {
  const int from = steady.warm_up - 1;
  std::vector<WorkerSeconds> seconds;
  for (int rank = 0; rank < workers; ++rank) {
    seconds.push_back(
        SecondsBetween(cluster.trainer(rank).iterations, from, from + steady.measured));
  }
  return seconds;
}

// By worker, what all do while the quickest one does its measured iterations. Those that are slower
// would have the network for themselves later, where nobody waits for them.
std::vector<WorkerSeconds> SecondsMeanwhile(const SimulatedCluster& cluster, int workers,
                                            const SteadyIterations& steady) {
  Time begin = Time::max();
  Time end = Time::max();
  for (int rank = 0; rank < workers; ++rank) {
    const std::vector<IterationTimes>& times = cluster.trainer(rank).iterations;
    begin = std::min(begin, times[steady.warm_up - 1].end);
    end = std::min(end, times[steady.warm_up + steady.measured - 1].end);
  }
  std::vector<WorkerSeconds> seconds;
  for (int rank = 0; rank < workers; ++rank) {
    const std::vector<IterationTimes>& times = cluster.trainer(rank).iterations;
    const auto later = std::ranges::upper_bound(times, begin, {}, &IterationTimes::end);
    const auto last = std::ranges::lower_bound(times, end, {}, &IterationTimes::end);
    const size_t from = std::max<int64_t>(later - times.begin() - 1, 0);
    const size_t to = last - times.begin();
    seconds.push_back(SecondsBetween(times, from, std::max(to, from + 1)));
  }
  return seconds;
}

struct MeasuredIteration {
  double seconds = 0;
  double busy = 1;  // share of it
};

// Of all workers together.
MeasuredIteration MeasureIteration(const SimulatedCluster& cluster, const Job& job,
                                   const SteadyIterations& steady, JointPace pace) {
  const int count = job.cluster().workers();
  std::vector<WorkerSeconds> workers = pace == JointPace::kEachItsOwn
                                           ? SecondsMeanwhile(cluster, count, steady)
                                           : SecondsOf(cluster, count, steady);
  // The slowest of several devices is not as quick as planned in the mean of ever so many.
  const bool one_device = job.cluster().devices_per_worker() == 1;
  const auto each = [one_device](const WorkerSeconds& worker) {
    return one_device ? worker.EachOfMany() : worker.Each();
  };
  std::vector<double> own;
  for (const WorkerSeconds& worker : workers) own.push_back(each(worker));
  if (pace == JointPace::kSlowest) {
    const double all = std::ranges::max_element(workers, {}, &WorkerSeconds::all)->all;
    for (WorkerSeconds& worker : workers) worker.all = all;
  }
  WorkerSeconds sum;
  for (const WorkerSeconds& worker : workers) sum.Add(worker);
  return {.seconds = pace == JointPace::kTogether ? each(sum) : SecondsOfAll(pace, own),
          .busy = sum.all > 0 ? sum.busy / sum.all : 1};
}

// What an iteration computes, or a step of several, as a worker that is alone takes for it.
Duration TimeAlone(const ComputeTimeline& timeline, const Job& job) {
  // Of a stretch of local steps layers' costs are no part.
  if (job.communication().local_steps() > 1) return ComputeTime(timeline);
  const ComputeDisturbance disturbance(job.cluster().disturbance());
  Duration sum{};
  for (const ComputeStep& step : timeline.steps) {
    sum += disturbance.MeanOf(step.forward) + disturbance.MeanOf(step.backward);
  }
  return sum;
}

// The end of the first iteration at the last worker, without what the iteration computes.
double StartOf(const SimulatedCluster& cluster, int workers, Duration compute) {
  Time end{};
  for (int rank = 0; rank < workers; ++rank) {
    end = std::max(end, cluster.trainer(rank).iterations.front().end);
  }
  return ToSeconds(end - compute);
}

}  // namespace

double SecondsAlone(const Job& job, const ModelSpec& model) {
  return ToSeconds(TimeAlone(TimelineOf(job, model), job));
}

int WarmUpIterations(const Job& job) {
  constexpr int kTorus = 6;  // from there on within 0.5% of what they are after 20
  const Communication& communication = job.communication();
  // Where machines differ some come to be ahead of others.
  if (communication.staleness() != 0 || job.cluster().deviation_size() > 0) return 20;
  switch (communication.policy()) {
    case Communication::ALL_TORUS:
      return kTorus;
    case Communication::ALL_HALVING_DOUBLING:
    case Communication::TIME:  // may choose it
      return 20;
    default:
      return 2;
  }
}

std::string SchemeSummary(const Plan& plan) {
  constexpr double kThousand = 1e3;
  constexpr double kMillion = 1e6;
  std::map<Scheme, int64_t> floats;
  for (const BucketPlan& bucket : plan.buckets()) floats[bucket.scheme()] += FloatCount(bucket);
  std::string summary;
  for (const auto& [scheme, count] : floats) {
    const auto all = static_cast<double>(count);
    const bool millions = all >= kMillion;
    char text[32];
    std::snprintf(text, sizeof text, " %.1f%c", all / (millions ? kMillion : kThousand),
                  millions ? 'M' : 'K');
    summary += (summary.empty() ? "" : ", ") + SchemeName(scheme) + text;
  }
  return summary;
}

SimulatedTraining SimulateTraining(const Job& job, const ModelSpec& model,
                                   const SteadyIterations& steady, const Condition& condition,
                                   const SimulationControl& control) {
  const int64_t iterations = int64_t{steady.warm_up} + steady.measured;
  SimulationWatch watch(control, job.cluster(), model.layers_size(), iterations);
  SimulatedClusterOptions options = PhantomTraining(WithoutDeadlines(job), model, iterations);
  Apply(condition, job, options.layout);
  options.planner = control.planner;
  // As the scheduler's program would have measured them.
  if (job.training().batch() == Training::BALANCED && job.training().part().empty()) {
    options.planner = [&](const InformationBook& book, const Job& planned) {
      Plan plan = control.planner ? control.planner(book, planned) : PlanJob(book, planned);
      BalanceParts(options.layout, model, plan);
      return plan;
    };
  }
  MachineTraffic traffic(options.layout, steady);
  // The network's only sight of every message.
  ProcessingCosts costs(ClusterOf(job));
  const SchedulerRecord* scheduler = nullptr;
  options.network.processing = [&](const Envelope& envelope) {
    traffic.Add(envelope);
    watch.OnMessage(envelope);
    if (!costs.has_plan() && scheduler->plan) {
      watch.OnPlan(scheduler->plan->plan());
      costs.SetPlan(*scheduler->plan);
    }
    return costs.Of(envelope);
  };
  options.network.arithmetic = [&](const ArithmeticAmount& amount) { return costs.Of(amount); };
  SimulatedCluster cluster(options);
  scheduler = &cluster.scheduler();
  if (!cluster.Run(Time::max())) throw Error(ExitCode::kFailure, "the simulated training hangs");
  ThrowIfFailed(cluster);

  SimulatedTraining result;
  result.plan = cluster.scheduler().plan->plan();
  const int workers = job.cluster().workers();
  const int steps = job.communication().local_steps();
  const double measured = static_cast<double>(steady.measured) * steps;
  const Duration alone = TimeAlone(options.work.timeline, job);
  result.compute = ToSeconds(alone);
  const bool alike = job.cluster().deviation().empty() && condition.deviation().empty();
  const JointPace pace = PaceOf(job.communication().staleness(), alike);
  const MeasuredIteration iteration = MeasureIteration(cluster, job, steady, pace);
  result.iteration = iteration.seconds / steps;
  result.busy = iteration.busy;
  result.start = StartOf(cluster, workers, steps * alone);
  const MachineTraffic::Bytes busiest = traffic.Busiest();
  result.bytes_sent = static_cast<double>(busiest.sent) / measured;
  result.bytes_received = static_cast<double>(busiest.received) / measured;
  result.mean_bytes = traffic.Mean() / measured;
  result.schemes = SchemeSummary(result.plan);
  return result;
}

}  // namespace poseidon
