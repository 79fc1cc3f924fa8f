// ProcessingCosts: how long a simulated lane is busy with a message (SimOptions.processing): what
// the planner takes it to be (planner/cost/exchange_model.*).
//
//   any message from another node                message_cost
//   a gradient, at its server                    its floats added up, at reduction_rate; the last
//                                                worker's of an iteration also the chunk's update,
//                                                at update_rate, unless the workers update
//   a sum of gradients, at a worker              the chunk's update, unless its devices make it
//   a part of an all-reduce, at a worker         added up, or, if it is a part of the sum, updated
//                                                with the share of what the worker added up
//                                                itself; likewise
//   an all-reduce's gradient, at the only worker the update of the lane's chunks; likewise
//
// and with the work that an actor leaves (SimOptions.arithmetic): parameters updated at
// update_rate, and matrix products, which rebuild gradients from factors, at LaneFlops().
//
// Not thread-safe. Messages are asked about once each, in the order of their arrival; they are
// those of one simulated cluster. Nodes may be lost where workers make the updates: what servers
// add up of an iteration that is done again would be miscounted.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arithmetic/sliced_arithmetic.h"
#include "core/time.h"
#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"
#include "transport/envelope.h"

namespace poseidon {

class ProcessingCosts {
 public:
  explicit ProcessingCosts(const ClusterModel& cluster);

  // Before any message of a data lane under it. It is copied.
  void SetPlan(const wire::PlanAndModel& plan);
  bool has_plan() const { return plan_.buckets_size() > 0; }

  Duration Of(const Envelope& envelope);
  Duration Of(const ArithmeticAmount& amount) const;

 private:
  struct Bucket {
    // What each chunk costs.
    std::vector<Duration> add;
    std::vector<Duration> update;
    bool on_devices = false;  // what is a worker's update costs no lane
    // Gradients that have come for each iteration in the window, by chunk.
    std::vector<int> arrived;
  };

  Duration OfExchange(const Envelope& envelope);
  Duration OfGradient(const Envelope& envelope, Bucket& bucket);
  Duration OfReduce(const Envelope& envelope) const;
  // Which no other worker's part of an all-reduce will follow.
  Duration OfOwnGradient(const Envelope& envelope) const;
  // Whether it is the last of `awaited` gradients of a chunk.
  bool IsLast(int64_t iteration, int chunk, int awaited, Bucket& bucket) const;

  ClusterModel cluster_;
  Duration message_cost_;
  Plan plan_;
  std::vector<Bucket> buckets_;
  int window_ = 1;  // iterations whose messages may be under way at the same time
};

}  // namespace poseidon
