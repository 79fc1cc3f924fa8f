// ExchangeModel: a training run in numbers, message by message: workers that compute, servers that
// answer, all-reduces that go round, on NicModel's links. The order of messages is that of the
// actors in client/ and server/, so that it predicts what they do. An event costs a hundredth of
// what it costs where the actors themselves are simulated.
//
// Where all workers stay alike (rings only) one of them stands for all, at the slowest one's pace.
#pragma once

#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/predicted_times.h"
#include "planner/cost/reduce_shapes.h"
#include "proto/model.pb.h"

namespace poseidon {

// Simulates until iterations take the same time, or one takes clearly more than `give_up` seconds:
// then no more is said than that. `layers` are the slowest worker's, `shapes` of
// Representatives(plan, cluster).
PredictedTimes SimulateExchange(const Plan& plan, const ModelSpec& model,
                                const ClusterModel& cluster, const std::vector<LayerTime>& layers,
                                ReduceShapes& shapes, double give_up);

}  // namespace poseidon
