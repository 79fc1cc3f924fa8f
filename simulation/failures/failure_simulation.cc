#include "simulation/failures/failure_simulation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "planner/cost/cluster_model.h"
#include "simulation/failures/loss_draws.h"
#include "simulation/phantom_training.h"
#include "simulation/processing_costs.h"
#include "simulation/simulated_cluster.h"
#include "simulation/training_simulation.h"

namespace poseidon {
namespace {

// Undisturbed iterations for the mean of one. Where machines vary, single ones do by some 2%, and
// the mean of so many by 0.4%.
constexpr int kMeasured = 3;
constexpr int kMeasuredWhereAllVary = 30;
// Iterations in which all have as much to wait for as later.
constexpr int kSettled = 3;
constexpr double kHung = 1e6;  // seconds
constexpr double kFar = 1e9;   // seconds; times of the simulation are whole nanoseconds
// The training never comes to its end; when the losses are over it is left.
constexpr int64_t kEndless = int64_t{1} << 40;

// The job, which waits for replacements as long as they take; and these, as somebody would start
// them again, until their predecessors' silence is noticed.
Job Waiting(Job job, const FailureScenario& scenario) {
  Cluster& cluster = *job.mutable_cluster();
  cluster.set_join_deadline_seconds(std::max(cluster.join_deadline_seconds(),
                                             2 * job.communication().heartbeat_deadline_seconds()));
  Recovery& recovery = *job.mutable_recovery();
  recovery.set_replacement_deadline_seconds(
      std::max(recovery.replacement_deadline_seconds(), 2 * scenario.replacement + kHung));
  return job;
}

class FailureRun {
 public:
  FailureRun(const Job& job, const ModelSpec& model, const FailureScenario& scenario,
             const SimulationControl& control)
      : scenario_(scenario),
        mode_(job.recovery().mode()),
        measured_(Varies(job.cluster().disturbance()) ? kMeasuredWhereAllVary : kMeasured),
        warm_up_(WarmUpIterations(job)),
        watched_(control),
        watch_(Counting(control), job.cluster(), model.layers_size(), Iterations()),
        costs_(ClusterOf(job)),
        cluster_(Options(Waiting(job, scenario), model, control.planner)),
        draws_(scenario.mtbf, scenario.seed, NodesOf(job)) {
    for (int rank = 0; rank < job.cluster().workers(); ++rank) workers_.insert(rank);
    servers_ = job.cluster().servers();
    all_workers_ = job.cluster().workers();
    const Communication& communication = job.communication();
    noticed_after_ = Seconds(communication.heartbeat_deadline_seconds() +
                             communication.heartbeat_interval_seconds());
  }

  FailureCosts Run() {
    MeasureUndisturbed();
    while (answer_.losses < scenario_.losses) LoseNext();
    while (!Settled()) Step();
    return Answer();
  }

 private:
  // The end of an iteration at all workers.
  struct Mark {
    int64_t iteration = 0;
    Time end{};
  };

  // What the actors are expected to do, for the memory that it takes.
  int64_t Iterations() const {
    const int after_a_loss = Shrinks() ? measured_ + 1 : kSettled;
    return warm_up_ + measured_ + int64_t{scenario_.losses} * (after_a_loss + kSettled + 2);
  }

  static std::vector<NodeId> NodesOf(const Job& job) {
    std::vector<NodeId> nodes;
    for (int i = 0; i < job.cluster().workers(); ++i) nodes.push_back({Role::kWorker, i});
    for (int i = 0; i < job.cluster().servers(); ++i) nodes.push_back({Role::kServer, i});
    return nodes;
  }

  // Says how many losses are through instead of how many messages.
  const SimulationControl& Counting(const SimulationControl& control) {
    if (!control.progress) return watched_;
    watched_.progress = [this, report = control.progress](const SimulationProgress& progress) {
      report({progress.messages, static_cast<double>(answer_.losses) / scenario_.losses});
    };
    return watched_;
  }

  SimulatedClusterOptions Options(const Job& job, const ModelSpec& model,
                                  const JobPlanner& planner) {
    SimulatedClusterOptions options = PhantomTraining(job, model, kEndless);
    options.planner = planner;
    for (const ComputeStep& step : options.work.timeline.steps) {
      slice_ += (step.forward + step.backward) / 4;
    }
    options.network.processing = [this](const Envelope& envelope) {
      watch_.OnMessage(envelope);
      if (const auto& plan = cluster_.scheduler().plan) SetPlan(*plan);
      return costs_.Of(envelope);
    };
    options.network.arithmetic = [this](const ArithmeticAmount& amount) {
      return costs_.Of(amount);
    };
    return options;
  }

  void SetPlan(const wire::PlanAndModel& plan) {
    if (plan.plan().number() == plan_number_) return;
    if (!plan_number_) watch_.OnPlan(plan.plan());
    plan_number_ = plan.plan().number();
    costs_.SetPlan(plan);
  }

  Time now() const { return cluster_.runtime().now(); }
  // Since the first moment at which a node could fail.
  double Elapsed() const { return ToSeconds(now() - begun_.end) + skipped_; }

  void Step() { Step(now() + slice_); }

  void Step(Time until) {
    cluster_.Run(until);
    if (const auto& end = cluster_.node({Role::kScheduler, 0}).end) {
      throw Error(ExitCode::kFailure, "the job ended after " + std::to_string(answer_.losses) +
                                          " losses: " + end->reason());
    }
    if (answer_.losses == 0) ExpectNoLoss();
    if (ToSeconds(now() - since_) > kHung) {
      throw Error(ExitCode::kFailure, "the simulated training hangs after " +
                                          std::to_string(answer_.losses) + " losses");
    }
  }

  // The job may give up a node that has not failed: where a network is so slow that its stall
  // deadline is over before the first values are there.
  void ExpectNoLoss() const {
    for (const std::string& notice : cluster_.scheduler().notices) {
      if (!notice.starts_with("lost ")) continue;
      throw Error(ExitCode::kFailure, "the simulated job has " + notice +
                                          "; nothing had failed, so the network is too slow for "
                                          "the job's deadlines");
    }
  }

  const std::vector<IterationTimes>& Times(int rank) const {
    return cluster_.trainer(rank).iterations;
  }

  // Of the iterations that the worker has ended.
  size_t Ended(int rank) const {
    const std::vector<IterationTimes>& times = Times(rank);
    return times.size() - (!times.empty() && times.back().end == Time{} ? 1 : 0);
  }

  // Every worker has ended so many iterations that it began since then.
  bool EndedSince(size_t iterations) const {
    return std::all_of(workers_.begin(), workers_.end(), [&](int rank) {
      const size_t ended = Ended(rank);
      return ended >= iterations && Times(rank)[ended - iterations].begin >= since_;
    });
  }
  bool Settled() const { return EndedSince(kSettled); }
  // What an iteration takes is known. Each loss that leaves fewer makes it another time.
  bool Measured() const {
    return EndedSince(Shrinks() && answer_.losses > 0 ? measured_ + 1 : kSettled);
  }

  Mark LastMark() const {
    Mark mark{kEndless, {}};
    for (const int rank : workers_) {
      mark.iteration = std::min(mark.iteration, Times(rank)[Ended(rank) - 1].iteration);
    }
    for (const int rank : workers_) {
      size_t last = Ended(rank) - 1;
      while (Times(rank)[last].iteration > mark.iteration) --last;
      mark.end = std::max(mark.end, Times(rank)[last].end);
    }
    return mark;
  }

  // The mean of the last ones, over the workers.
  double MeanIteration(int iterations) const {
    double sum = 0;
    for (const int rank : workers_) {
      const size_t last = Ended(rank) - 1;
      sum += ToSeconds(Times(rank)[last].end - Times(rank)[last - iterations].end);
    }
    return sum / iterations / static_cast<double>(workers_.size());
  }

  void MeasureUndisturbed() {
    slice_ = std::max(slice_, Duration(std::chrono::milliseconds(1)));
    while (!EndedSince(warm_up_ + measured_)) Step();
    answer_.iteration = MeanIteration(measured_);
    iteration_ = answer_.iteration;
    slice_ = std::max(Seconds(answer_.iteration / 8), Duration(std::chrono::microseconds(1)));
    begun_ = LastMark();
  }

  void LoseNext() {
    const NodeLoss loss = draws_.Next();
    while (!Measured() && now() < TimeOf(loss.when)) {
      Step(std::min(now() + slice_, TimeOf(loss.when)));
    }
    if (Measured()) SkipTo(loss.when);
    const Time when = std::max(now(), TimeOf(loss.when));
    cluster_.KillAt(when, loss.node);
    // A server without KV pairs is not missed before its silence is noticed.
    since_ = when + std::max(noticed_after_, Seconds(Shrinks() ? 0 : scenario_.replacement));
    Step(when);
    ++answer_.losses;
    if (Shrinks()) return Leave(loss.node);
    const double begin = ToSeconds(when - begun_.end) + skipped_ + scenario_.replacement;
    cluster_.RestartAt(when + Seconds(scenario_.replacement), loss.node, false);
    draws_.Replace(loss.node, begin);
  }

  // Whole iterations that nothing disturbs pass.
  void SkipTo(double when) {
    if (scenario_.whole) {
      while (now() < TimeOf(when)) Step(std::min(now() + slice_, TimeOf(when)));
      return;
    }
    if (Shrinks() && answer_.losses > 0) iteration_ = MeanIteration(measured_);
    const double iterations = std::floor((when - Elapsed()) / iteration_);
    if (iterations < 1) return;
    skipped_ += iterations * iteration_;
    skipped_iterations_ += iterations * Share(static_cast<int>(workers_.size()));
    answer_.counted += std::llround(iterations);
  }

  // Of this simulation, at which so much has elapsed.
  Time TimeOf(double elapsed) const {
    return begun_.end + Seconds(std::min(elapsed - skipped_, kFar));
  }

  bool Shrinks() const { return mode_ == Recovery::SHRINK; }
  double Share(int workers) const { return static_cast<double>(workers) / all_workers_; }

  void Leave(const NodeId& node) {
    if (node.role == Role::kWorker) workers_.erase(node.rank);
    if (node.role == Role::kServer) --servers_;
    if (!workers_.empty() && servers_ > 0) return;
    throw ConfigError("nobody comes in the place of the lost, and loss " +
                      std::to_string(answer_.losses) + " is of the last " + RoleName(node.role) +
                      "; ask for fewer losses");
  }

  FailureCosts Answer() {
    const Mark end = LastMark();
    answer_.wall = ToSeconds(end.end - begun_.end) + skipped_;
    answer_.simulated = end.iteration - begun_.iteration;
    answer_.kept = skipped_iterations_;
    const Plan& plan = cluster_.scheduler().plan->plan();
    for (int64_t i = begun_.iteration + 1; i <= end.iteration; ++i) {
      answer_.kept += Share(WorkersOf(plan, i));
    }
    answer_.workers = static_cast<int>(workers_.size());
    const std::vector<wire::Recovered>& recoveries = cluster_.scheduler().recoveries;
    answer_.recoveries = static_cast<int>(recoveries.size());
    for (const wire::Recovered& recovered : recoveries) {
      answer_.redone += recovered.reached() - recovered.iteration();
      answer_.detected += recovered.detected_seconds() / answer_.recoveries;
      answer_.restored += recovered.restored_seconds() / answer_.recoveries;
      answer_.longest =
          std::max(answer_.longest, recovered.detected_seconds() + recovered.restored_seconds());
    }
    return answer_;
  }

  static int WorkersOf(const Plan& plan, int64_t iteration) {
    int workers = plan.workers();
    for (const Tenure& tenure : plan.tenures()) {
      if (tenure.start_iteration() <= iteration) workers = tenure.workers();
    }
    return workers;
  }

  FailureScenario scenario_;
  Recovery::Mode mode_;
  int measured_;
  int warm_up_;
  SimulationControl watched_;
  SimulationWatch watch_;
  ProcessingCosts costs_;
  std::optional<int> plan_number_;
  Duration slice_{};  // after which there is a look at how far the training is
  SimulatedCluster cluster_;
  LossDraws draws_;
  std::set<int> workers_;  // that are in the job
  int servers_ = 0;
  int all_workers_ = 0;
  Duration noticed_after_{};

  FailureCosts answer_;
  Mark begun_;
  Time since_{};  // nothing is to be settled but what the last loss before this set off
  double iteration_ = 0;
  double skipped_ = 0;             // seconds
  double skipped_iterations_ = 0;  // each by the share of its workers
};

}  // namespace

FailureCosts SimulateFailures(const Job& job, const ModelSpec& model,
                              const FailureScenario& scenario, const SimulationControl& control) {
  return FailureRun(job, model, scenario, control).Run();
}

}  // namespace poseidon
