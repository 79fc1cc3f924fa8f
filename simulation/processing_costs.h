// ProcessingCosts: how long a simulated lane is busy with a message (SimOptions.processing): what
// the planner takes it to be (planner/cost/exchange_model.*).
//
//   any message from another node                message_cost
//   a gradient, at its server                    its floats added up, at reduction_rate; the last
//                                                worker's of an iteration also the chunk's update,
//                                                at update_rate, unless the workers update
//   a sum of gradients, at a worker              the chunk's update
//   a part of an all-reduce, at a worker         added up, or, if it is a part of the sum, updated
//                                                with the share of what the worker added up itself
//   the last of all workers' factors, its own    2 M N K floating-point operations for each worker
//   too, at a worker (SFB) or a server (Adam)    at `flops`, and the layer's update
//
// A lane is busy before it handles a message. So that a worker's own factors do not leave only
// after they have been used, where they are the last it is the word that the layer is fresh that
// waits for the rebuild.
//
// Not thread-safe. Messages are asked about once each, in the order of their arrival; they are
// those of one simulated cluster whose nodes are all alive.
#pragma once

#include <cstdint>
#include <vector>

#include "core/time.h"
#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"
#include "transport/envelope.h"

namespace poseidon {

class ProcessingCosts {
 public:
  explicit ProcessingCosts(const ClusterModel& cluster);

  // Before any message of a data lane. Both are copied.
  void SetPlan(const Plan& plan, const ModelSpec& model);
  bool has_plan() const { return plan_.buckets_size() > 0; }

  Duration Of(const Envelope& envelope);

 private:
  struct Bucket {
    // What each chunk costs.
    std::vector<Duration> add;
    std::vector<Duration> update;
    Duration rebuild{};
    // What has come for each iteration in the window: gradients by chunk, or factors by node.
    std::vector<int> arrived;
    std::vector<bool> owed;  // by worker: a rebuild before the layer is fresh
  };

  Duration OfExchange(const Envelope& envelope);
  Duration OfGradient(const Envelope& envelope, Bucket& bucket);
  Duration OfReduce(const Envelope& envelope) const;
  Duration OfFactors(const Envelope& envelope, Scheme scheme, Bucket& bucket) const;
  // The word that a worker's own gradient is there, and that all is done.
  void CountOwn(const Envelope& envelope, Bucket& bucket) const;
  Duration OfFresh(const Envelope& envelope, Bucket& bucket) const;
  // Whether it is the last of `awaited` that come to `place`.
  bool IsLast(int64_t iteration, int place, int awaited, Bucket& bucket) const;

  ClusterModel cluster_;
  Duration message_cost_;
  Plan plan_;
  std::vector<Bucket> buckets_;
  int window_ = 1;  // iterations whose messages may be under way at the same time
};

}  // namespace poseidon
