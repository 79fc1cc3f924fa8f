// What a bucket's exchange costs a node: bytes by message, and processing. Pure functions; used by
// both models of time.
#pragma once

#include <cstdint>

#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"

namespace poseidon {

// Bytes of `floats` floats on the wire under the bucket's codec, without header.
int64_t CodedBytes(const Plan& plan, const BucketPlan& bucket, int64_t floats);

// PS, ADAM: bytes of a chunk's answer, which is values as they are or coded sums.
int64_t AnswerBytes(const Plan& plan, const BucketPlan& bucket, int64_t floats);

// SFB, ADAM: bytes of one worker's u and v.
struct FactorBytes {
  int64_t u = 0;
  int64_t v = 0;
};
FactorBytes FactorBytesOf(const Plan& plan, const BucketPlan& bucket, const ModelSpec& model);

// Seconds that a lane needs to add up floats of gradient, and to update as many parameters.
double AddSeconds(int64_t floats, const ClusterModel& cluster);
double UpdateSeconds(int64_t floats, const ClusterModel& cluster);
// All-reduces: of updating a chunk, spread over what a worker receives of its sum: all but the
// share that it adds up itself.
double GatheredUpdateSeconds(int64_t floats, const ClusterModel& cluster);

// Whether the workers' devices make the bucket's update (planner/cost/device_copy_cost.h has what
// that takes); then no lane does. Not that of a rule which needs the whole gradient first.
bool DevicesUpdate(const BucketPlan& bucket, const ModelSpec& model, const ClusterModel& cluster);

// SFB, ADAM: seconds to multiply the factors of so many workers, at `flops` operations a second; of
// a lane to multiply those of all, and to apply the update, too.
double MultiplySeconds(const InnerProductSpec& product, int workers, double flops);
double RebuildSeconds(const Plan& plan, const BucketPlan& bucket, const ModelSpec& model,
                      const ClusterModel& cluster);

// Bytes, without headers, that cross the network in an iteration, at the most loaded machine in
// each direction.
struct BucketBytes {
  int64_t sent = 0;
  int64_t received = 0;
};
BucketBytes BytesOfBucket(const Plan& plan, const BucketPlan& bucket, const ModelSpec& model,
                          const ClusterModel& cluster);

}  // namespace poseidon
