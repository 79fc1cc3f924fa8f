// SchedulerActor: going on with fewer nodes after a loss (docs/recovery.md).
//
// Ranks stay with the processes that have them. Another number of workers or servers needs another
// plan, which says whose ranks take part, and a tenure: from which iteration on so many workers
// share the data.
#include <algorithm>
#include <set>

#include "planner/cost/information_book.h"
#include "planner/job_plan.h"
#include "proto/plan_members.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

void SchedulerActor::Shrink(Outbox& outbox) {
  // As long as nobody has values all workers that were asked for can still come: the job has not
  // lost anything by waiting for them.
  if (plan_body_.size() == 0 || round_.FindCut(plan_.plan()).holders.empty()) return;
  const bool has_server = std::ranges::any_of(
      roster_.nodes(), [](const wire::Node& node) { return IdOf(node).role == Role::kServer; });
  for (const NodeId& id : roster_.MissingNodes()) {
    // Of the servers' ranks one is for another process: the first that comes (ShrinkToServer).
    if (id.role == Role::kServer && !has_server) continue;
    roster_.Vacate(id);
  }
  const auto left = [this](Role role) {
    return std::to_string(std::ranges::count_if(
        roster_.nodes(), [&](const wire::Node& node) { return IdOf(node).role == role; }));
  };
  Tell("goes on with " + left(Role::kWorker) + " of " + std::to_string(plan_.plan().workers()) +
           " workers and " + left(Role::kServer) + " of " + std::to_string(plan_.plan().servers()) +
           " servers",
       outbox);
}

void SchedulerActor::ShrinkToServer(Outbox& outbox) {
  if (phase_ == Phase::kRegrouping && Shrinks() && !roster_.complete()) Shrink(outbox);
}

bool SchedulerActor::ShrinksAtLast(Outbox& outbox) {
  if (!MayShrink(options_.job.recovery())) return false;
  Shrink(outbox);
  if (!roster_.complete()) return false;
  TryGoOn(outbox);
  return true;
}

std::set<int> SchedulerActor::RanksOf(Role role) const {
  std::set<int> ranks;
  for (const NodeId& id : members_) {
    if (id.role == role) ranks.insert(id.rank);
  }
  return ranks;
}

wire::PlanAndModel SchedulerActor::NextPlan(const Cut& cut) const {
  wire::PlanAndModel next = plan_;
  Plan& plan = *next.mutable_plan();
  const std::set<int> workers = RanksOf(Role::kWorker);
  const std::set<int> servers = RanksOf(Role::kServer);
  const int number = plan.number() + 1;
  const int64_t start = cut.holders.empty() ? plan.start_iteration() : cut.iteration;
  if (workers != RanksOfWorkers(plan) || servers != RanksOfServers(plan)) {
    Job job = options_.job;
    job.mutable_cluster()->set_workers(static_cast<int>(workers.size()));
    job.mutable_cluster()->set_servers(static_cast<int>(servers.size()));
    KeepDeviations(workers, *job.mutable_cluster());
    // Those that come offer as many.
    job.mutable_communication()->set_lanes(plan.lanes());
    if (plan_.has_network()) *job.mutable_cluster()->mutable_network() = plan_.network();
    plan = options_.planner(InformationBook(plan_.model(), job.cluster()), job);
    plan.set_layout(number);
    SetMembers(workers, servers, plan);
    ContinueTenures(plan_.plan(), start, plan);
    if (options_.job.elastic().learning_rate() == Elastic::LINEAR) {
      ScaleRateByTenures(plan, options_.job.cluster().workers(),
                         *next.mutable_model()->mutable_update_rule());
    }
  }
  plan.set_number(number);
  plan.set_start_iteration(start);
  plan.clear_holders();
  for (const int rank : cut.holders) plan.add_holders(PlaceOfWorker(plan, rank));
  for (BucketPlan& bucket : *plan.mutable_buckets()) {
    for (Chunk& chunk : *bucket.mutable_chunks()) chunk.clear_recipient();
  }
  for (const Cut::Gap& gap : cut.gaps) {
    plan.mutable_buckets(gap.bucket)->mutable_chunks(gap.chunk)->set_recipient(gap.recipient);
  }
  return next;
}

}  // namespace poseidon
