// A quick estimate of the iteration: each bucket is some work for the most loaded machine's link
// and some waiting that keeps no link busy, and the link serves buckets by priority while the
// backward pass makes them ready. For searching among thousands of plans, and for clusters too
// large for the exchange model.
#pragma once

#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/exchange_model.h"
#include "proto/model.pb.h"

namespace poseidon {

// One bucket's exchange, in seconds.
struct BucketLoad {
  double link = 0;   // of the link of the machine that the whole plan loads most
  double lane = 0;   // of a node's lane, on average: its messages, sums and updates
  double alone = 0;  // from ready to fresh with the network to itself; at least `link`
};

std::vector<BucketLoad> BucketLoads(const Plan& plan, const ModelSpec& model,
                                    const ClusterModel& cluster);

// The iteration in the steady state: nothing is left of the exchanges when the backward pass
// begins, as under BSP. With staleness nobody waits, but for the link.
PredictedTimes EstimateIteration(const Plan& plan, const std::vector<BucketLoad>& loads,
                                 const std::vector<LayerTime>& layers);

// What no order of messages can undercut: computing, and the most loaded link.
double LeastSeconds(const std::vector<BucketLoad>& loads, const std::vector<LayerTime>& layers);

}  // namespace poseidon
