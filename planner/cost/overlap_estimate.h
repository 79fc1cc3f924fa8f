// A quick estimate of the iteration: each bucket is some work for the most loaded machine's link
// and some waiting that keeps no link busy, and the link serves buckets by priority while the
// backward pass makes them ready. For searching among thousands of plans, and for clusters too
// large for the exchange model.
#pragma once

#include <algorithm>
#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/exchange_model.h"
#include "proto/model.pb.h"

namespace poseidon {

// One bucket's exchange, in seconds.
struct BucketLoad {
  // Of the link of the machine that the whole plan loads most.
  double sent = 0;
  double received = 0;
  // Of a node's lane, on average: its messages, sums and updates.
  double worker_lane = 0;
  double server_lane = 0;
  double alone = 0;  // from ready to fresh with the network to itself; at least link()

  double link() const { return std::max(sent, received); }
  double lane() const { return std::max(worker_lane, server_lane); }
};

std::vector<BucketLoad> BucketLoads(const Plan& plan, const ModelSpec& model,
                                    const ClusterModel& cluster);

// The iteration in the steady state: nothing is left of the exchanges when the backward pass
// begins, as under BSP. With staleness nobody waits, but for the link.
PredictedTimes EstimateIteration(const Plan& plan, const std::vector<BucketLoad>& loads,
                                 const std::vector<LayerTime>& layers);

// What no order of messages can undercut: computing, the most loaded link in either direction, and
// the lanes of workers and those of servers. These work side by side, also for different buckets.
double LeastSeconds(const std::vector<BucketLoad>& loads, const std::vector<LayerTime>& layers);

}  // namespace poseidon
