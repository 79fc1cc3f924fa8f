#include "scheduler/monitor/job_status.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/replan.h"
#include "proto/plan_members.h"
#include "scheduler/report/iteration_pace.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// Enough to see what has happened lately; all of them are in summary.json and the logs.
constexpr size_t kMostNotices = 50;
constexpr size_t kMostRecoveries = 50;
// Rates are of so many iterations, or fewer where these already take so long.
constexpr size_t kMostForRates = 64;
constexpr double kMillisecondsForRates = 2000;

}  // namespace

StatusTracker::StatusTracker(const Job& job, Time now) {
  status_.job = job.name();
  status_.started = now;
  for (int rank = 0; rank < job.cluster().workers(); ++rank) {
    status_.nodes[{Role::kWorker, rank}];
  }
  for (int rank = 0; rank < job.cluster().servers(); ++rank) {
    status_.nodes[{Role::kServer, rank}];
  }
}

void StatusTracker::Restore(const wire::JournalRecord& record) {
  using Record = wire::JournalRecord;
  switch (record.record_case()) {
    case Record::kPlan:
      return OnPlan(record.plan());
    case Record::kIteration:
      status_.images += record.iteration().images();
      return OnIteration(record.iteration(), {});
    case Record::kStart:
      if (record.start().has_recovered()) OnRecovered(record.start().recovered());
      return;
    case Record::kFinished:
      return OnFinished(record.finished());
    case Record::kRecalibrated:
      return OnRecalibration(record.recalibrated());
    default:
      return;
  }
}

void StatusTracker::OnView(const wire::View& view) {
  // A job that shrinks has fewer nodes from now on; those that are gone stay to be seen as lost.
  for (const wire::Node& node : view.nodes()) {
    NodeStatus& status = status_.nodes[IdOf(node)];
    if (status.pid != node.pid() || status.host != node.host()) {
      status = {};
      // What the others have done is what it goes on from, or is told again of.
      status.done = status_.iteration;
    }
    status.host = node.host();
    status.pid = node.pid();
    status.lost = false;
    status.overdue = false;
  }
}

void StatusTracker::OnPhase(const wire::JobPhase& phase, Time now) {
  const bool trained = status_.phase == "training" || status_.phase == "agreeing";
  if (phase.phase() == "training" && !trained) status_.resumed = now;
  status_.phase = phase.phase();
  status_.waiting_for = phase.waiting_for();
  if (phase.phase() == "training" && status_.progressed == Time{}) status_.progressed = now;
  for (auto& [id, node] : status_.nodes) node.awaited = false;
  for (const wire::Node& node : phase.missing()) status_.nodes[IdOf(node)].awaited = true;
  for (const wire::Node& node : phase.lost()) status_.nodes[IdOf(node)].lost = true;
}

void StatusTracker::OnOverdue(const wire::Silent& overdue) {
  for (auto& [id, node] : status_.nodes) node.overdue = false;
  for (const wire::Node& node : overdue.nodes()) status_.nodes[IdOf(node)].overdue = true;
}

void StatusTracker::OnPlan(const wire::PlanAndModel& plan) {
  status_.plan = std::make_shared<const wire::PlanAndModel>(plan);
  layouts_[plan.plan().number()] = plan.plan().layout();
  if (status_.iterations == 0) status_.iterations = plan.model().iterations();
  status_.iteration = std::max(status_.iteration, plan.plan().start_iteration());
  status_.timeline.reset();
  measured_.assign(plan.plan().buckets_size(), {});
  // Who is not of the plan any more has been lost, and nobody takes its place.
  const auto forget = [&](Role role, const std::set<int>& ranks) {
    for (auto& [id, node] : status_.nodes) {
      if (id.role == role && !ranks.contains(id.rank)) node.lost = true;
    }
  };
  for (auto& [id, node] : status_.nodes) {
    if (id.role != Role::kWorker) continue;
    node.done = std::max(node.done, plan.plan().start_iteration());
  }
  forget(Role::kWorker, RanksOfWorkers(plan.plan()));
  forget(Role::kServer, RanksOfServers(plan.plan()));
}

void StatusTracker::OnRecalibration(const Plan& plan) {
  if (status_.plan == nullptr) return;
  auto better = std::make_shared<wire::PlanAndModel>(*status_.plan);
  CopyPredictions(plan, *better->mutable_plan());
  status_.plan = std::move(better);
}

void StatusTracker::OnProgress(const wire::Progress& progress, Time now) {
  if (progress.has_test_accuracy() || progress.has_test_loss()) {
    LastTest test;
    test.iteration = progress.iteration();
    if (progress.has_test_accuracy()) test.accuracy = progress.test_accuracy();
    if (progress.has_test_loss()) test.loss = progress.test_loss();
    status_.test = test;
    return;
  }
  NodeStatus& node = status_.nodes[{Role::kWorker, progress.rank()}];
  // It is told again after a scheduler has been away.
  if (progress.iteration() < node.done) return;
  node.done = progress.iteration() + 1;
  node.images += progress.images();
  node.iteration_seconds = progress.iteration_seconds();
  node.exchange_seconds = progress.exchange_seconds();
  node.exposed_seconds = progress.exposed_seconds();
  node.heard = now;
  status_.images += progress.images();
  if (progress.total_iterations() > 0) status_.iterations = progress.total_iterations();
  if (progress.has_timeline()) AddTimeline(progress);
}

void StatusTracker::OnLinks(const wire::LinkReport& links) {
  std::optional<MeasuredLink>& slowest = status_.nodes[{Role::kWorker, links.rank()}].link;
  slowest.reset();
  for (const wire::LinkMeasurement& link : links.links()) {
    if (slowest && slowest->goodput_bytes_per_second <= link.goodput_bytes_per_second()) continue;
    slowest = {link.latency_seconds(), link.goodput_bytes_per_second()};
  }
}

void StatusTracker::OnStragglers(const std::vector<Straggler>& stragglers) {
  for (auto& [id, node] : status_.nodes) node.slow.reset();
  for (const Straggler& straggler : stragglers) {
    if (!straggler.until) status_.nodes[{Role::kWorker, straggler.rank}].slow = straggler;
  }
}

void StatusTracker::AddTimeline(const wire::Progress& progress) {
  const wire::IterationTimeline& timeline = progress.timeline();
  const bool fits = status_.plan != nullptr && timeline.plan() == status_.plan->plan().number() &&
                    timeline.buckets_size() == status_.plan->plan().buckets_size();
  if (!fits) return;
  for (int b = 0; b < timeline.buckets_size(); ++b) {
    measured_[b].sum_ms += timeline.buckets(b).fresh_ms() - timeline.buckets(b).ready_ms();
    ++measured_[b].count;
  }
  // One worker's, so that what is shown does not jump between machines.
  if (status_.timeline && status_.timeline_rank < progress.rank()) return;
  status_.timeline = timeline;
  status_.timeline_rank = progress.rank();
}

void StatusTracker::OnIteration(const wire::IterationRecord& iteration, Time now) {
  status_.history.Add(iteration);
  if (iteration.number() + 1 < status_.iteration) return;  // it has been told late
  status_.iteration = iteration.number() + 1;
  status_.loss = iteration.loss();
  if (now != Time{}) status_.progressed = now;
  newest_.push_back(iteration);
  UpdateRates();
}

void StatusTracker::UpdateRates() {
  double milliseconds = 0;
  for (const wire::IterationRecord& iteration : newest_) milliseconds += iteration.duration_ms();
  while (newest_.size() > kMostForRates ||
         (newest_.size() > 1 &&
          milliseconds - newest_.front().duration_ms() >= kMillisecondsForRates)) {
    milliseconds -= newest_.front().duration_ms();
    newest_.pop_front();
  }
  int64_t images = 0;
  double exposed = 0;
  double together = 0;
  double slowest = 0;
  for (const wire::IterationRecord& iteration : newest_) {
    images += iteration.images();
    exposed += iteration.exposed_ms();
    together += TogetherMs(iteration);
    slowest += SlowestMs(iteration);
  }
  const auto count = static_cast<double>(newest_.size());
  status_.iteration_ms = newest_.empty() ? kUnknownValue : milliseconds / count;
  status_.exposed_ms = newest_.empty() ? kUnknownValue : exposed / count;
  status_.slowest_ms = newest_.empty() ? kUnknownValue : slowest / count;
  const bool known = images > 0 && together > 0;
  status_.images_per_second = known ? 1000 * static_cast<double>(images) / together : kUnknownValue;
}

void StatusTracker::OnRecovered(const wire::Recovered& recovered) {
  const bool planned = recovered.joined_size() > 0 || recovered.left_size() > 0;
  if (!planned || recovered.lost_size() > 0) ++status_.recovery_count;
  status_.recoveries.push_back(recovered);
  if (status_.recoveries.size() > kMostRecoveries) {
    status_.recoveries.erase(status_.recoveries.begin());
  }
  for (const wire::Node& node : recovered.left()) {
    const auto found = status_.nodes.find(IdOf(node));
    // Another may have the rank already. Under the next scheduler nobody has joined yet.
    const bool is_it = found != status_.nodes.end() &&
                       (found->second.host.empty() ||
                        (found->second.pid == node.pid() && found->second.host == node.host()));
    if (is_it) status_.nodes.erase(found);
  }
  finished_.clear();
  ForgetFrom(recovered.iteration());
}

void StatusTracker::ForgetFrom(int64_t iteration) {
  status_.history.CutFrom(iteration);
  status_.iteration = std::min(status_.iteration, iteration);
  for (auto& [id, node] : status_.nodes) {
    node.done = std::min(node.done, iteration);
    node.finished = false;
  }
  newest_.clear();
  UpdateRates();
}

void StatusTracker::OnNotice(const wire::Notice& notice) {
  status_.notices.push_back(notice);
  if (status_.notices.size() > kMostNotices) status_.notices.pop_front();
}

void StatusTracker::OnFinished(const wire::WorkerReport& report) {
  finished_[report.rank()] = report;
  NodeStatus& node = status_.nodes[{Role::kWorker, report.rank()}];
  node.finished = true;
  node.awaited = false;
}

void StatusTracker::OnEnd(const wire::End& end) {
  status_.end = end;
  status_.phase = "ended";
  status_.waiting_for.clear();
}

JobStatus StatusTracker::status(Time now) const {
  JobStatus status = status_;
  status.now = now;
  for (const Measured& bucket : measured_) {
    status.measured_ms.push_back(
        bucket.count > 0 ? bucket.sum_ms / static_cast<double>(bucket.count) : kUnknownValue);
  }
  if (status.plan == nullptr || finished_.empty()) return status;
  // Who has finished tells of all iterations.
  const std::vector<BucketSums> sums = SumBuckets(status.plan->plan(), layouts_, finished_);
  for (size_t b = 0; b < sums.size(); ++b) {
    if (sums[b].measured_workers > 0) status.measured_ms[b] = sums[b].milliseconds;
  }
  return status;
}

}  // namespace poseidon
