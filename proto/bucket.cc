#include "proto/bucket.h"

#include <algorithm>
#include <limits>
#include <set>

#include "proto/model_size.h"

namespace poseidon {

std::string SchemeName(Scheme scheme) {
  switch (scheme) {
    case PS:
      return "PS";
    case SFB:
      return "SFB";
    case RING:
      return "ring";
    case HALVING_DOUBLING:
      return "halving-doubling";
    case TORUS:
      return "torus";
    case ADAM:
      return "Adam";
    default:
      return "none";
  }
}

std::string CodecName(WireCodec codec) {
  switch (codec) {
    case FP16:
      return "fp16";
    case BF16:
      return "bf16";
    case ONE_BIT:
      return "1-bit";
    case TOP_K:
      return "top-k";
    case INT8:
      return "int8";
    default:
      return "fp32";
  }
}

int64_t FloatCount(const BucketPlan& bucket) {
  int64_t floats = 0;
  for (const Chunk& chunk : bucket.chunks()) floats += chunk.size();
  return floats;
}

bool IsAllReduce(Scheme scheme) {
  return scheme == RING || scheme == HALVING_DOUBLING || scheme == TORUS;
}

bool UsesFactors(Scheme scheme) { return scheme == SFB || scheme == ADAM; }

bool UsesServers(Scheme scheme) { return scheme == PS || scheme == ADAM; }

Multipliers MultipliersOf(const BlobSpec& blob) {
  return {.lr = blob.has_lr_mult() ? blob.lr_mult() : 1,
          .decay = blob.has_decay_mult() ? blob.decay_mult() : 1};
}

std::vector<int> GroupsOf(const ModelSpec& model, const BucketPlan& bucket) {
  std::set<int> groups;
  for (int l = bucket.first_layer(); l < bucket.first_layer() + bucket.layer_count(); ++l) {
    for (const BlobSpec& blob : model.layers(l).blobs()) groups.insert(blob.group());
  }
  return {groups.begin(), groups.end()};
}

std::vector<UpdateSegment> UpdateSegments(const ModelSpec& model, const BucketPlan& bucket,
                                          int64_t offset, int64_t size) {
  std::vector<UpdateSegment> segments;
  const std::vector<int> groups = GroupsOf(model, bucket);
  int64_t blob_begin = 0;
  for (int l = bucket.first_layer(); l < bucket.first_layer() + bucket.layer_count(); ++l) {
    for (const BlobSpec& blob : model.layers(l).blobs()) {
      const int64_t count = FloatCount(blob);
      const int64_t begin = std::max(blob_begin, offset);
      const int64_t end = std::min(blob_begin + count, offset + size);
      const auto group = std::ranges::lower_bound(groups, blob.group()) - groups.begin();
      if (begin < end) {
        segments.push_back({end - begin, MultipliersOf(blob), static_cast<int>(group)});
      }
      blob_begin += count;
    }
  }
  return segments;
}

void UpdateSegmentwise(const UpdateRule& rule, int64_t iteration,
                       const std::vector<UpdateSegment>& segments,
                       std::span<const float> gradient_sum, float gradient_scale,
                       std::span<float> parameters, std::span<float> optimizer_state,
                       float learning_rate_scale, std::span<const ParameterGroup> groups) {
  const size_t state = OptimizerStatePerParameter(rule);
  size_t offset = 0;
  for (const UpdateSegment& segment : segments) {
    const size_t size = segment.size;
    Update({rule, iteration, segment.multipliers, gradient_scale, learning_rate_scale,
            groups.empty() ? nullptr : &groups[segment.group]},
           gradient_sum.subspan(offset, size), parameters.subspan(offset, size),
           optimizer_state.subspan(offset * state, size * state));
    offset += size;
  }
}

std::vector<UpdateSegment> CutSegments(const std::vector<UpdateSegment>& segments, int64_t offset,
                                       int64_t size) {
  std::vector<UpdateSegment> cut;
  int64_t begin = 0;
  for (const UpdateSegment& segment : segments) {
    const int64_t first = std::max(begin, offset);
    begin += segment.size;
    const int64_t last = std::min(begin, offset + size);
    if (first < last) cut.push_back({last - first, segment.multipliers, segment.group});
  }
  return cut;
}

SlicedArithmetic SlicedUpdate(int64_t floats, std::function<void(int64_t, int64_t)> update) {
  SlicedArithmetic sliced;
  sliced.slices = FloatSlice::Count(floats);
  sliced.amount.updated = static_cast<double>(floats);
  if (!update) return sliced;
  sliced.run = [floats, update = std::move(update)](int64_t slice) {
    const FloatSlice part = FloatSlice::At(slice, floats);
    update(part.offset, part.size);
  };
  return sliced;
}

std::vector<int> BucketOfLayer(const Plan& plan) {
  std::vector<int> buckets;
  for (int b = 0; b < plan.buckets_size(); ++b) {
    buckets.insert(buckets.end(), plan.buckets(b).layer_count(), b);
  }
  return buckets;
}

int64_t PriorityOf(bool fifo, int buckets, int bucket, int64_t exchange) {
  if (fifo) return 0;
  // No training comes so far, but a damaged frame says what it will.
  const int64_t last = (std::numeric_limits<int64_t>::max() - bucket) / buckets;
  return std::clamp<int64_t>(exchange, 0, last) * buckets + bucket;
}

int64_t PriorityOf(const Plan& plan, int bucket, int64_t exchange) {
  return PriorityOf(plan.fifo(), plan.buckets_size(), bucket, exchange);
}

double ExpectedIterationMs(const Plan& plan) {
  return plan.simulated_ms() > 0 ? plan.simulated_ms() : plan.iteration_ms();
}

bool LosesMost(WireCodec codec) { return codec == ONE_BIT || codec == TOP_K; }

bool NeedsErrorFeedback(WireCodec codec) { return LosesMost(codec) || codec == INT8; }

Codec CodecOf(const Plan& plan, const BucketPlan& bucket) {
  switch (bucket.codec()) {
    case FP16:
      return {CodecType::kFp16, 0};
    case BF16:
      return {CodecType::kBf16, 0};
    case ONE_BIT:
      return {CodecType::kOneBit, 0};
    case TOP_K:
      return {CodecType::kTopK, plan.top_k_share()};
    case INT8:
      return {CodecType::kInt8, 0};
    default:
      return {CodecType::kFp32, 0};
  }
}

}  // namespace poseidon
