// What the exchange model looks up of a plan: sizes, delays and orders, worked out once.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/bucket_costs.h"
#include "planner/cost/cluster_model.h"
#include "planner/cost/reduce_shapes.h"
#include "proto/model.pb.h"

namespace poseidon {

// Times are nanoseconds; bytes are a message's, with header.
struct ChunkTable {
  int64_t floats = 0;
  int server_machine = 0;  // schemes with servers
  int64_t up = 0;
  int64_t down = 0;
  // How long lanes are busy.
  int64_t add_time = 0;  // of the server, with each worker's gradient
  // With the last one, under ADAM chunk 0's for all; and of each worker, with the answer.
  int64_t answer_time = 0;
  int64_t answered_time = 0;
  const ReduceShape* shape = nullptr;  // all-reduces
};

// What one lane sends of a bucket.
struct LanePart {
  int lane = 0;
  std::vector<int> chunks;  // in their order; none of a bucket that travels as factors
  int64_t alone_time = 0;   // of the only worker's all-reduce: the updates, which await nobody
};

struct BucketTable {
  const BucketPlan* plan = nullptr;
  std::vector<LanePart> parts;  // by lane
  std::vector<ChunkTable> chunks;
  FactorBytes factors;
  int64_t rebuild_time = 0;      // SFB: of a worker
  std::vector<int64_t> to_host;  // by layer of the bucket
  int64_t to_devices = 0;
  // All-reduces: of a float that is added up, and of one that is sent as a part of the sum.
  double add_time = 0;
  double update_time = 0;
  int awaited = 0;  // arrivals that make a worker's bucket fresh
};

// `plan` and `shapes` must outlive the result.
std::vector<BucketTable> MakeBucketTables(const Plan& plan, const ModelSpec& model,
                                          const ClusterModel& cluster, ReduceShapes& shapes);

// Plans of more messages in an iteration are predicted with so many workers that stand for all,
// where all workers do the same. Enough for workers to drift apart, as they do where they exchange
// in pairs; that costs up to a fifth of the iteration.
inline constexpr int64_t kMostOfAll = 100000;
inline constexpr int kRepresentatives = 16;

// Whether all workers do the same for the bucket, only with other peers.
bool InStep(const BucketPlan& bucket, const Plan& plan);

// The workers that stand for all: one where all stay alike (rings); 0: all workers are simulated,
// as those of machines that differ are, where that is quick.
int Representatives(const Plan& plan, const ClusterModel& cluster);

// Messages that the exchange model makes for an iteration: what it costs.
int64_t MessagesPerIteration(const Plan& plan, const ClusterModel& cluster);
// Those of all workers: what trying the plan costs.
int64_t MessagesOfAll(const Plan& plan);

}  // namespace poseidon
