#include "client/gradient_buffers.h"

namespace poseidon {

GradientBuffers GradientBuffersOf(const SyncContext& context, int layer, int64_t iteration) {
  const LayerMemory& memory = context.memory->layer(layer);
  if (context.plan.plan().layers(layer).scheme() != SFB) return {memory.gradient, {}, {}};
  const FactorStack& stack = memory.stacks[iteration % 2];
  const size_t u = stack.u.size() / context.workers();
  const size_t v = stack.v.size() / context.workers();
  return {{}, stack.u.subspan(context.rank * u, u), stack.v.subspan(context.rank * v, v)};
}

}  // namespace poseidon
