#include "client/sync/model_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/alignment.h"
#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "proto/bucket.h"
#include "proto/model_size.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

// Whether the bucket's gradients go to other workers, who may be slower than this one.
bool HasPeers(const Plan& plan, const BucketPlan& bucket) {
  return IsAllReduce(bucket.scheme()) && plan.workers() > 1;
}

}  // namespace

void ModelMemory::Free::operator()(float* memory) const { std::free(memory); }

ModelMemory::ModelMemory(const wire::PlanAndModel& plan, const Options& options)
    : phantom_(options.phantom), buckets_(options.phantom ? 1 : plan.plan().buckets_size()) {
  PlaceLayers(plan);
  if (phantom_) return;
  const Devices& devices = options.devices;
  if (devices.allocate) pinned_.emplace(devices.allocate);
  const UpdateRule rule = ToUpdateRule(plan.model().update_rule());
  for (int b = 0; b < plan.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(b);
    const int64_t parameters = FloatCount(bucket);
    BucketMemory& memory = buckets_[b];
    memory.values = Allocate(parameters);
    // The host makes deferred updates itself, or has the mean in the gradient's place.
    const bool on_devices = devices.update_factors && bucket.scheme() == SFB && !rule.deferred;
    const bool keeps = options.recovers && bucket.update_at_workers();
    if (bucket.scheme() != ADAM && !on_devices) AllocateGradients(plan, bucket, keeps, memory);
    if (bucket.update_at_workers()) AllocateOptimizerState(rule, parameters, keeps, memory);
    if (NeedsErrorFeedback(bucket.codec())) {
      memory.residual = Allocate(parameters);
    }
    const Codec codec = CodecOf(plan.plan(), bucket);
    // What such a codec has not sent goes back with the job, which the lanes see to.
    const bool stays_on_host = options.recovers && NeedsErrorFeedback(bucket.codec());
    if (devices.pack && bucket.scheme() == PS && codec.type != CodecType::kFp32 && !stays_on_host) {
      AllocatePacked(codec, bucket, memory);
    }
    if (UsesFactors(bucket.scheme())) AllocateFactors(plan, bucket, memory);
  }
}

void ModelMemory::PlaceLayers(const wire::PlanAndModel& plan) {
  for (int b = 0; b < plan.plan().buckets_size(); ++b) {
    int64_t offset = 0;
    for (int i = 0; i < plan.plan().buckets(b).layer_count(); ++i) {
      const int64_t size = FloatCount(plan.model().layers(static_cast<int>(places_.size())));
      places_.push_back({b, offset, size});
      offset += size;
    }
  }
}

void ModelMemory::AllocateGradients(const wire::PlanAndModel& plan, const BucketPlan& bucket,
                                    bool keeps, BucketMemory& memory) {
  const int64_t parameters = FloatCount(bucket);
  const bool has_peers = HasPeers(plan.plan(), bucket);
  memory.gradients[0] = Allocate(parameters);
  memory.gradients[1] = has_peers || keeps ? Allocate(parameters) : memory.gradients[0];
  if (keeps && has_peers) memory.before.fill(Allocate(parameters));
  if (keeps && !has_peers) memory.before = memory.gradients;
}

void ModelMemory::AllocateOptimizerState(const UpdateRule& rule, int64_t parameters, bool keeps,
                                         BucketMemory& memory) {
  const bool one_gradient = memory.gradients[0].data() == memory.gradients[1].data();
  if (rule.type == "MeanGradient" && one_gradient) {
    memory.optimizer_state.fill(memory.gradients[0]);
    return;
  }
  const int64_t floats = parameters * OptimizerStatePerParameter(rule);
  memory.optimizer_state.fill(Allocate(floats));
  if (keeps) memory.optimizer_state[1] = Allocate(floats);
}

void ModelMemory::AllocateFactors(const wire::PlanAndModel& plan, const BucketPlan& bucket,
                                  BucketMemory& memory) {
  const InnerProductSpec& product = plan.model().layers(bucket.first_layer()).inner_product();
  const int64_t rows = product.rows() * (bucket.scheme() == SFB ? plan.plan().workers() : 1);
  for (FactorStack& stack : memory.stacks) {
    stack.u = Allocate(rows * product.outputs());
    stack.v = Allocate(rows * product.inputs());
  }
}

void ModelMemory::AllocatePacked(const Codec& codec, const BucketPlan& bucket,
                                 BucketMemory& memory) {
  size_t bytes = 0;
  for (const Chunk& chunk : bucket.chunks()) bytes += EncodedBytes(codec, chunk.size());
  const auto floats = static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
  memory.packed = std::as_writable_bytes(Allocate(floats)).first(bytes);
  std::span<std::byte> rest = memory.packed;
  for (const Chunk& chunk : bucket.chunks()) {
    const size_t size = EncodedBytes(codec, chunk.size());
    memory.packed_chunks.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
}

std::span<float> ModelMemory::values(int layer) const {
  const LayerPlace& place = places_[layer];
  const std::span<float> bucket = this->bucket(place.bucket).values;
  return bucket.empty() ? bucket : bucket.subspan(place.offset, place.size);
}

std::span<float> ModelMemory::gradient(int layer, int64_t iteration) const {
  const LayerPlace& place = places_[layer];
  const std::span<float> bucket = this->bucket(place.bucket).gradients[iteration % 2];
  return bucket.empty() ? bucket : bucket.subspan(place.offset, place.size);
}

std::span<float> ModelMemory::Allocate(int64_t count) {
  if (pinned_) {
    const std::span<float> pinned = pinned_->Allocate(count);
    if (!pinned.empty()) return pinned;
  }
  const size_t size = count * sizeof(float);
  const size_t rounded = (size + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
  std::unique_ptr<float, Free> block(
      static_cast<float*>(std::aligned_alloc(kVectorAlignment, rounded)));
  if (block == nullptr) {
    throw Error(ExitCode::kFailure,
                "not enough memory for the model's buffers: " + std::to_string(bytes() >> 20) +
                    " MiB are in use and " + std::to_string(size >> 20) + " MiB more are needed");
  }
  std::memset(block.get(), 0, rounded);
  bytes_ += static_cast<int64_t>(rounded);
  float* const begin = block.get();
  blocks_.push_back(std::move(block));
  return {begin, static_cast<size_t>(count)};
}

}  // namespace poseidon
