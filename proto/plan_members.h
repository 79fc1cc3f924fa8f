// Who takes part in a plan, and whether that changes. Nodes are known by their ranks, which they
// keep as long as they are in the job; the plan counts those that take part, in the order of their
// ranks. A node's place is its number in that count: without losses its rank.
//
//   worker_ranks: 0, 2, 3     PlaceOfWorker(plan, 2) -> 1     RankOfWorker(plan, 1) -> 2
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Whether the job may go on with fewer than it began with.
bool MayShrink(const Recovery& recovery);

// Whether servers keep a part of what the job goes on from after a loss: each chunk that they
// update has a backup.
bool KeepsAtServers(const Plan& plan);
// Whether servers keep something that goes back with the job: that, or what codecs with error
// feedback have not sent of the sums.
bool GoesBackAtServers(const Plan& plan);

int RankOfWorker(const Plan& plan, int place);
int RankOfServer(const Plan& plan, int place);
// -1: it takes no part.
int PlaceOfWorker(const Plan& plan, int rank);
int PlaceOfServer(const Plan& plan, int rank);

// Places of the workers that the plan's holders send to, ascending; none where worker 0 alone has
// what the plan begins with.
std::vector<int> PlacesBesideHolders(const Plan& plan);

// Ranks.
std::set<int> RanksOfWorkers(const Plan& plan);
std::set<int> RanksOfServers(const Plan& plan);

// Makes these the plan's members; there are as many as the plan has workers and servers.
void SetMembers(const std::set<int>& workers, const std::set<int>& servers, Plan& plan);

// Leaves of what is known of machines that of these workers', by their places among them.
void KeepDeviations(const std::set<int>& workers, Cluster& cluster);

// The training is the present number of workers' from iteration `start` on, as `before` has it
// until there. What `before` had planned to come later does not come.
void ContinueTenures(const Plan& before, int64_t start, Plan& plan);

// Elastic.LINEAR: makes the learning rate the rule's times the workers of each of the plan's
// tenures by `workers`, those that the rule's rate is for.
void ScaleRateByTenures(const Plan& plan, int workers, UpdateRuleSpec& rule);

}  // namespace poseidon
