// What every node reads out of a bucket's plan. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/arithmetic/codec.h"
#include "core/arithmetic/sliced_arithmetic.h"
#include "core/arithmetic/update_rule.h"
#include "proto/model.pb.h"

namespace poseidon {

// "PS", "SFB", "ring", "halving-doubling", "torus", "Adam": for people and results.
std::string SchemeName(Scheme scheme);
// "fp32", "fp16", "bf16", "1-bit", "top-k", "int8".
std::string CodecName(WireCodec codec);
// Whether most of a gradient waits in a residual for iterations to come, so that updates are late.
bool LosesMost(WireCodec codec);
// As NeedsErrorFeedback(Codec).
bool NeedsErrorFeedback(WireCodec codec);

// Floats of all the bucket's layers.
int64_t FloatCount(const BucketPlan& bucket);

// Workers reduce the gradients among themselves: ring, halving-doubling, torus.
bool IsAllReduce(Scheme scheme);
// Workers send u and v instead of the gradient: SFB, Adam.
bool UsesFactors(Scheme scheme);
// Servers own the bucket: PS, Adam.
bool UsesServers(Scheme scheme);

// What the blob says, or 1 where it says nothing, as in Caffe.
Multipliers MultipliersOf(const BlobSpec& blob);

// A run of floats that belong to one blob.
struct UpdateSegment {
  int64_t size = 0;
  Multipliers multipliers;
  int group = 0;  // place of the blob's parameter group among GroupsOf the bucket
};

// Numbers of the parameter groups that the bucket's blobs belong to, ascending.
std::vector<int> GroupsOf(const ModelSpec& model, const BucketPlan& bucket);

// The blobs under the `size` floats from `offset` (in the bucket's floats), in their order.
std::vector<UpdateSegment> UpdateSegments(const ModelSpec& model, const BucketPlan& bucket,
                                          int64_t offset, int64_t size);

// Applies `rule` to such a range, blob by blob; arguments as of core's Update. `groups`: of a rule
// of torch.optim's, what GroupsOf the bucket say of this iteration.
void UpdateSegmentwise(const UpdateRule& rule, int64_t iteration,
                       const std::vector<UpdateSegment>& segments,
                       std::span<const float> gradient_sum, float gradient_scale,
                       std::span<float> parameters, std::span<float> optimizer_state,
                       float learning_rate_scale = 1, std::span<const ParameterGroup> groups = {});

// Those of `segments` that lie under the `size` floats from `offset`, cut to them.
std::vector<UpdateSegment> CutSegments(const std::vector<UpdateSegment>& segments, int64_t offset,
                                       int64_t size);

// An update of `floats` floats in slices. `update` is called with a slice's offset and size; empty
// for phantoms.
//
//     SlicedUpdate(1 << 20, [&](int64_t offset, int64_t size) { UpdateRange(offset, size); });
SlicedArithmetic SlicedUpdate(int64_t floats, std::function<void(int64_t, int64_t)> update);

// The bucket that each of the model's layers is in.
std::vector<int> BucketOfLayer(const Plan& plan);

// The priority of a bucket's frames; `exchange` is the iteration whose gradients they sum up:
// what a forward pass needs first goes first. So older exchanges overtake newer ones, without which
// workers drift apart on a busy network, and lower layers overtake deeper ones. 0 for all if the
// plan says first come, first served; `buckets` is how many the plan has.
int64_t PriorityOf(bool fifo, int buckets, int bucket, int64_t exchange);
int64_t PriorityOf(const Plan& plan, int bucket, int64_t exchange);

Codec CodecOf(const Plan& plan, const BucketPlan& bucket);

// What an iteration under the plan is expected to take: as it was tried, else as predicted; 0 where
// neither is known.
double ExpectedIterationMs(const Plan& plan);

}  // namespace poseidon
