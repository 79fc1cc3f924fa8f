#include "client/sync/gradient_buffers.h"

#include "device/gradient_packer.h"
#include "proto/bucket.h"

namespace poseidon {

PackedGradient PackedGradientOf(const SyncContext& context, int layer) {
  const LayerPlace& place = context.memory->place(layer);
  const std::span<std::byte> bucket = context.memory->bucket(place.bucket).packed;
  const Codec codec = CodecOf(context.plan.plan(), context.bucket(place.bucket));
  if (bucket.empty() || !PacksEachFloatAlone(codec)) return {};
  return {bucket.subspan(EncodedBytes(codec, place.offset), EncodedBytes(codec, place.size)),
          codec};
}

std::vector<PackedChunk> PackedChunksOf(const SyncContext& context) {
  std::vector<PackedChunk> chunks;
  const Plan& plan = context.plan.plan();
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const BucketMemory& memory = context.memory->bucket(b);
    if (memory.packed_chunks.empty() || memory.residual.empty()) continue;
    const BucketPlan& bucket = plan.buckets(b);
    int layer = bucket.first_layer();
    for (int c = 0; c < bucket.chunks_size(); ++c) {
      const Chunk& chunk = bucket.chunks(c);
      const auto end = [&] {
        const LayerPlace& place = context.memory->place(layer);
        return place.offset + place.size;
      };
      while (chunk.offset() >= end()) ++layer;
      chunks.push_back(
          {CodecOf(plan, bucket), layer, chunk.offset() - context.memory->place(layer).offset,
           memory.residual.subspan(chunk.offset(), chunk.size()), memory.packed_chunks[c]});
    }
  }
  return chunks;
}

GradientBuffers GradientBuffersOf(const SyncContext& context, int layer, int64_t iteration) {
  const int index = context.memory->place(layer).bucket;
  const Scheme scheme = context.plan.plan().buckets(index).scheme();
  if (!UsesFactors(scheme)) return {context.memory->gradient(layer, iteration), {}, {}};
  const FactorStack& stack = context.memory->bucket(index).stacks[iteration % 2];
  if (scheme == ADAM) return {{}, stack.u, stack.v};
  const size_t u = stack.u.size() / context.workers();
  const size_t v = stack.v.size() / context.workers();
  return {{}, stack.u.subspan(context.place * u, u), stack.v.subspan(context.place * v, v)};
}

}  // namespace poseidon
