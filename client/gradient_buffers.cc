#include "client/gradient_buffers.h"

#include "proto/bucket.h"

namespace poseidon {

PackedBuffer PackedBufferOf(const SyncContext& context, int layer) {
  const LayerPlace& place = context.memory->place(layer);
  const std::span<std::byte> bucket = context.memory->bucket(place.bucket).packed;
  if (bucket.empty()) return {};
  const CodecSpec codec = CodecOf(context.plan.plan(), context.bucket(place.bucket));
  return {bucket.subspan(EncodedBytes(codec, place.offset), EncodedBytes(codec, place.size)),
          codec};
}

GradientBuffers GradientBuffersOf(const SyncContext& context, int layer, int64_t iteration) {
  const int index = context.memory->place(layer).bucket;
  const Scheme scheme = context.plan.plan().buckets(index).scheme();
  if (!UsesFactors(scheme)) return {context.memory->gradient(layer, iteration), {}, {}};
  const FactorStack& stack = context.memory->bucket(index).stacks[iteration % 2];
  if (scheme == ADAM) return {{}, stack.u, stack.v};
  const size_t u = stack.u.size() / context.workers();
  const size_t v = stack.v.size() / context.workers();
  return {{}, stack.u.subspan(context.rank * u, u), stack.v.subspan(context.rank * v, v)};
}

}  // namespace poseidon
