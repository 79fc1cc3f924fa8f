// What the exchange model looks up of a plan: sizes, delays and orders, worked out once.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model.pb.h"
#include "scheduler/bucket_costs.h"
#include "scheduler/cluster_spec.h"
#include "scheduler/reduce_shapes.h"

namespace poseidon {

// Times are nanoseconds; bytes are a message's, with header.
struct ChunkTable {
  int64_t floats = 0;
  int server_machine = 0;  // schemes with servers
  int64_t up = 0;
  int64_t down = 0;
  int64_t answer_time = 0;             // of the server, from the last gradient on
  const ReduceShape* shape = nullptr;  // all-reduces
};

struct BucketTable {
  const BucketPlan* plan = nullptr;
  std::vector<int> order;  // of its chunks, as they are sent: lane by lane
  std::vector<ChunkTable> chunks;
  FactorBytes factors;
  int64_t rebuild_time = 0;
  int64_t copy_time = 0;  // to or from the accelerator
  double add_time = 0;    // of a byte
  int awaited = 0;        // arrivals that make a worker's bucket fresh
};

// `plan` and `shapes` must outlive the result.
std::vector<BucketTable> MakeBucketTables(const Plan& plan, const ModelSpec& model,
                                          const ClusterSpec& cluster, ReduceShapes& shapes);

// Whether one worker stands for all.
bool OneStandsForAll(const Plan& plan);

// Messages that the exchange model makes for an iteration: what it costs.
int64_t MessagesPerIteration(const Plan& plan);

}  // namespace poseidon
