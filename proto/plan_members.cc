#include "proto/plan_members.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "proto/bucket.h"

namespace poseidon {
namespace {

using Ranks = google::protobuf::RepeatedField<int>;

int RankAt(const Ranks& ranks, int place) { return ranks.empty() ? place : ranks.Get(place); }

int PlaceIn(const Ranks& ranks, int members, int rank) {
  if (ranks.empty()) return rank >= 0 && rank < members ? rank : -1;
  const auto found = std::ranges::find(ranks, rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

std::set<int> MembersOf(const Ranks& ranks, int members) {
  if (!ranks.empty()) return {ranks.begin(), ranks.end()};
  std::set<int> same;
  for (int rank = 0; rank < members; ++rank) same.insert(rank);
  return same;
}

void SetRanks(const std::set<int>& members, Ranks& ranks) {
  std::vector<int> same(members.size());
  std::iota(same.begin(), same.end(), 0);
  ranks.Clear();
  if (std::ranges::equal(members, same)) return;
  ranks.Add(members.begin(), members.end());
}

}  // namespace

bool MayShrink(const Recovery& recovery) {
  return recovery.mode() == Recovery::SHRINK ||
         (recovery.mode() == Recovery::REPLACE && recovery.otherwise() == Recovery::SHRINK);
}

bool KeepsAtServers(const Plan& plan) {
  return std::ranges::any_of(plan.buckets(), [](const BucketPlan& bucket) {
    return bucket.chunks_size() > 0 && bucket.chunks(0).has_backup();
  });
}

bool GoesBackAtServers(const Plan& plan) {
  return KeepsAtServers(plan) || std::ranges::any_of(plan.buckets(), [](const BucketPlan& bucket) {
           return UsesServers(bucket.scheme()) && NeedsErrorFeedback(bucket.codec());
         });
}

int RankOfWorker(const Plan& plan, int place) { return RankAt(plan.worker_ranks(), place); }
int RankOfServer(const Plan& plan, int place) { return RankAt(plan.server_ranks(), place); }

int PlaceOfWorker(const Plan& plan, int rank) {
  return PlaceIn(plan.worker_ranks(), plan.workers(), rank);
}

int PlaceOfServer(const Plan& plan, int rank) {
  return PlaceIn(plan.server_ranks(), plan.servers(), rank);
}

std::vector<int> PlacesBesideHolders(const Plan& plan) {
  std::vector<int> places;
  if (plan.holders().empty()) return places;
  std::vector<bool> holds(plan.workers());
  for (const int holder : plan.holders()) holds.at(holder) = true;
  for (int place = 0; place < plan.workers(); ++place) {
    if (!holds[place]) places.push_back(place);
  }
  return places;
}

std::set<int> RanksOfWorkers(const Plan& plan) {
  return MembersOf(plan.worker_ranks(), plan.workers());
}
std::set<int> RanksOfServers(const Plan& plan) {
  return MembersOf(plan.server_ranks(), plan.servers());
}

void SetMembers(const std::set<int>& workers, const std::set<int>& servers, Plan& plan) {
  SetRanks(workers, *plan.mutable_worker_ranks());
  SetRanks(servers, *plan.mutable_server_ranks());
}

void KeepDeviations(const std::set<int>& workers, Cluster& cluster) {
  const Cluster all = cluster;
  cluster.clear_deviation();
  for (const Deviation& deviation : all.deviation()) {
    const auto found = workers.find(deviation.worker());
    if (found == workers.end()) continue;
    Deviation& kept = *cluster.add_deviation();
    kept = deviation;
    kept.set_worker(static_cast<int>(std::distance(workers.begin(), found)));
  }
}

void ContinueTenures(const Plan& before, int64_t start, Plan& plan) {
  google::protobuf::RepeatedPtrField<Tenure> tenures = before.tenures();
  if (tenures.empty()) tenures.Add()->set_workers(before.workers());
  while (!tenures.empty() && tenures.rbegin()->start_iteration() >= start) tenures.RemoveLast();
  if (tenures.empty() || tenures.rbegin()->workers() != plan.workers()) {
    Tenure& present = *tenures.Add();
    present.set_start_iteration(tenures.size() == 1 ? 0 : start);
    present.set_workers(plan.workers());
  }
  *plan.mutable_tenures() = std::move(tenures);
}

void ScaleRateByTenures(const Plan& plan, int workers, UpdateRuleSpec& rule) {
  rule.clear_rate_scales();
  for (const Tenure& tenure : plan.tenures()) {
    RateScale& scale = *rule.add_rate_scales();
    scale.set_start_iteration(tenure.start_iteration());
    scale.set_scale(static_cast<float>(tenure.workers()) / static_cast<float>(workers));
  }
}

}  // namespace poseidon
