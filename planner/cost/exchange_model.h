// ExchangeModel: a training run in numbers, message by message: workers that compute, servers that
// answer, all-reduces that go round, on NicModel's links. The order of messages is that of the
// actors in client/ and server/, so that it predicts what they do. An event costs a hundredth of
// what it costs where the actors themselves are simulated.
//
// Where all workers stay alike (rings only) one of them stands for all.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/reduce_shapes.h"
#include "proto/model.pb.h"

namespace poseidon {

// Seconds from the start of the iteration's forward pass.
struct BucketTimes {
  double exchange = 0;  // from ready to fresh, mean over workers
  double ready = 0;     // mean over workers
  double sent = 0;      // by the last node
  double fresh = 0;     // mean over workers
  double needed = 0;    // mean over workers; the next forward pass wants it
};

struct PredictedTimes {
  double seconds = 0;
  std::vector<BucketTimes> buckets;
};

// Simulates until iterations take the same time, or one takes clearly more than `give_up` seconds:
// then no more is said than that. `shapes` must be of first workers only if OneStandsForAll(plan).
PredictedTimes SimulateExchange(const Plan& plan, const ModelSpec& model,
                                const ClusterModel& cluster, const std::vector<LayerTime>& layers,
                                ReduceShapes& shapes, double give_up);

}  // namespace poseidon
