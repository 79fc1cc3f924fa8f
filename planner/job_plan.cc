#include "planner/job_plan.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "core/arithmetic/torch_update.h"
#include "core/error.h"
#include "core/process/allowance.h"
#include "planner/backups.h"
#include "planner/batch_parts.h"
#include "planner/cost/cluster_model.h"
#include "planner/grid_choice.h"
#include "planner/lane_choice.h"
#include "planner/planner.h"
#include "planner/predictor.h"
#include "planner/time_planner.h"
#include "proto/bucket.h"
#include "proto/compatibility.h"
#include "proto/lanes.h"

namespace poseidon {
namespace {

// The numbers of torch.optim's rules go to servers with the gradients, and to nobody else.
void CheckServersUpdate(const UpdateRuleSpec& rule, const Job& job, const Plan& plan) {
  if (!IsTorchType(rule.type())) return;
  const std::string what = "the training program wants the servers to update (" + rule.type() + ")";
  if (plan.staleness() != 0) {
    throw ConfigError("communication.staleness must be 0: " + what +
                      ", by the mean gradient of all workers");
  }
  if (job.recovery().mode() != Recovery::NONE && !UpdatesAtServers(job)) {
    throw ConfigError("communication.update_at must be SERVERS: " + what +
                      ", which a job with recovery does where it says so");
  }
  for (const BucketPlan& bucket : plan.buckets()) {
    if (bucket.scheme() == PS && !bucket.update_at_workers()) continue;
    throw ConfigError(
        "communication.policy must be ALL_PS, without a codec or update_at WORKERS: " + what +
        ", but by the plan layer " + bucket.name() + " is updated by the workers");
  }
}

// What the plans are to be made by. Clipping needs the norm of the whole gradient, so no layer goes
// on before the last one's exchange. LARS needs a layer's own only; beside it the model does not
// say whether there is clipping, too.
Communication CommunicationOf(const UpdateRuleSpec& rule, const Job& job) {
  Communication communication = job.communication();
  if (rule.deferred() && !job.training().large_batch().has_lars()) {
    communication.set_wait_for_all(true);
  }
  return communication;
}

// How many searches run side by side: each is two, by priority and in order (PlanByTime).
int SearchesAtOnce() { return std::max(1, UsableCores() / 2); }

// Where the network has tiers: what was compared are plans for the machines' own links, which say
// nothing of this plan's time. So the number that was taken is among them.
void SetLanesOfOwnLinks(const Plan& own_links, Plan& plan) {
  *plan.mutable_other_lanes() = own_links.other_lanes();
  OtherLanes& taken = *plan.add_other_lanes();
  taken.set_lanes(own_links.lanes());
  taken.set_iteration_ms(ExpectedIterationMs(own_links));
  std::ranges::sort(*plan.mutable_other_lanes(), {}, &OtherLanes::lanes);
}

// Makes plans of one job by its policy.
class Maker {
 public:
  // The book, the job and `searched` outlive this.
  Maker(const InformationBook& book, const Job& job, const JobPlanTrial& trial,
        const std::stop_token& stop, const SearchListener& searched)
      : book_(book),
        job_(job),
        stop_(stop),
        searched_(searched),
        communication_(CommunicationOf(book.model().update_rule(), job)),
        by_time_(communication_.policy() == Communication::TIME),
        predictor_(book, ClusterOf(job)) {
    if (by_time_) {
      for (const ClusterModel& cluster : FartherClusters(job)) farther_.emplace_back(book, cluster);
    }
    if (!trial) return;
    trial_ = [&](const Plan& plan, TrialLength length) {
      return trial(plan, job, book.model(), length);
    };
  }

  Plan Make() {
    if (!PlansLanes(job_))
      return PlanFor(communication_.lanes(), predictor_, trial_, farther_, stop_, searched_);
    Plan lanes = PlanLanes();
    if (farther_.empty()) return lanes;
    Plan plan = PlanFor(lanes.lanes(), predictor_, trial_, farther_, stop_, searched_);
    plan.set_planned_lanes(true);
    SetLanesOfOwnLinks(lanes, plan);
    return plan;
  }

  const ClusterModel& cluster() const { return predictor_.cluster(); }

 private:
  // With the number of lanes that the machines' own links want.
  Plan PlanLanes() const {
    // How many a machine wants is up to its own link, whatever is beyond it.
    const PlanTrial trial = farther_.empty() ? trial_ : PlanTrial();
    std::mutex mutex;
    std::map<int, SearchReport> reports;  // by the number of lanes
    Plan plan = PlanWithLanes(
        static_cast<int>(book_.Query(Property::kLanes)), SearchesAtOnce(),
        [&](int number, const std::stop_token& unwanted) {
          Predictor own = predictor_;  // which only one thread may use
          return PlanFor(number, own, trial, {}, unwanted, [&, number](const SearchReport& report) {
            const std::lock_guard lock(mutex);
            reports[number] = report;
          });
        },
        stop_);
    if (!searched_ || stop_.stop_requested()) return plan;
    for (const auto& [number, report] : reports) {
      // Which others were looked at ahead, and how far, depends on the cores and on who was first.
      const bool was_compared =
          number == plan.lanes() ||
          std::ranges::count(plan.other_lanes(), number, &OtherLanes::lanes) > 0;
      if (was_compared) searched_(report);
    }
    return plan;
  }

  Plan PlanFor(int lanes, Predictor& predictor, const PlanTrial& trial,
               std::span<Predictor> farther, const std::stop_token& stop,
               const SearchListener& searched) const {
    Communication communication = communication_;
    communication.set_lanes(lanes);
    Plan plan = by_time_ ? PlanByTime(predictor, communication, trial, farther, stop, searched)
                         : MakePlan(book_, communication);
    if (job_.recovery().mode() != Recovery::NONE) PlaceBackups({}, plan);
    if (by_time_ || !job_.cluster().has_network()) return plan;
    // A grid that is named is somebody's who knows the links; along it go rings.
    if (plan.grid_size() > 0 && communication.grid().empty()) {
      SetGrid(BestGrid(predictor, plan, GridsFor(book_, communication)), plan);
    }
    predictor.Annotate(plan);
    return plan;
  }

  const InformationBook& book_;
  const Job& job_;
  std::stop_token stop_;
  const SearchListener& searched_;
  Communication communication_;
  bool by_time_;
  Predictor predictor_;
  std::vector<Predictor> farther_;  // for the tiers of its network
  PlanTrial trial_;
};

}  // namespace

void CheckUpdate(const UpdateRuleSpec& rule, const Job& job) {
  const Communication& communication = job.communication();
  if (!rule.deferred() && rule.type() != "MeanGradient") return;
  const std::string what =
      "the training program makes the updates itself (clip_gradients, large_batch.lars, or a "
      "solver of its own)";
  if (communication.staleness() != 0) {
    throw ConfigError("communication.staleness must be 0: " + what +
                      ", from the gradients of all workers");
  }
  if (rule.type() == "MeanGradient" && job.recovery().mode() != Recovery::NONE) {
    throw ConfigError(
        "recovery.mode must be NONE: " + what +
        ", and nobody but the program knows how to take one back; `poseidon run "
        "--restarts=N` starts such a job again; the program itself has to find its newest "
        "checkpoint then");
  }
  if (communication.update_at() == Communication::SERVERS) {
    throw ConfigError("communication.update_at must not be SERVERS: " + what);
  }
}

Plan PlanJob(const InformationBook& all, const Job& job, const JobPlanTrial& trial,
             const std::stop_token& stop, const SearchListener& searched) {
  CheckUpdate(all.model().update_rule(), job);
  CheckKvPairs(all, job.communication());
  const bool recovers = job.recovery().mode() != Recovery::NONE;
  // Unless the job asks for it servers keep nothing, which is what the loss of one costs least.
  InformationBook book = recovers && !UpdatesAtServers(job) ? all.WithUpdatesAtWorkers() : all;
  if (job.training().batch() == Training::BALANCED) book = book.WithoutFactors();
  Maker maker(book, job, trial, stop, searched);
  Plan plan = maker.Make();
  if (job.cluster().has_network() && !job.communication().has_window_bytes()) {
    plan.set_window_bytes(WindowBytes(maker.cluster()));
  }
  CheckServersUpdate(book.model().update_rule(), job, plan);
  SetFirstParts(job, book.model(), plan);
  return plan;
}

}  // namespace poseidon
