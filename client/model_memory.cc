#include "client/model_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/update_rule.h"
#include "proto/update_rule.h"

namespace poseidon {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and enough for any vector unit

}  // namespace

void ModelMemory::Free::operator()(float* memory) const { std::free(memory); }

ModelMemory::ModelMemory(const wire::PlanAndModel& plan, bool phantom) {
  layers_.resize(plan.plan().layers_size());
  if (phantom) return;
  const int64_t state = StatePerParameter(ToUpdateRule(plan.model().update_rule()));
  for (int l = 0; l < plan.plan().layers_size(); ++l) {
    const LayerPlan& layer = plan.plan().layers(l);
    int64_t parameters = 0;
    for (const Chunk& chunk : layer.chunks()) parameters += chunk.size();
    LayerMemory& memory = layers_[l];
    memory.values = Allocate(parameters);
    memory.gradient = Allocate(parameters);
    if (layer.scheme() != SFB) continue;
    const InnerProductSpec& product = plan.model().layers(l).inner_product();
    const int64_t rows = product.rows() * plan.plan().workers();
    memory.history = Allocate(parameters * state);
    for (FactorStack& stack : memory.stacks) {
      stack.u = Allocate(rows * product.outputs());
      stack.v = Allocate(rows * product.inputs());
    }
  }
}

std::span<float> ModelMemory::Allocate(int64_t count) {
  const size_t size = count * sizeof(float);
  const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  std::unique_ptr<float, Free> block(static_cast<float*>(std::aligned_alloc(kAlignment, rounded)));
  if (block == nullptr) {
    throw Error(ExitCode::kFailure,
                "not enough memory for the model's buffers: " + std::to_string(bytes_ >> 20) +
                    " MiB are in use and " + std::to_string(size >> 20) + " MiB more are needed");
  }
  std::memset(block.get(), 0, rounded);
  bytes_ += static_cast<int64_t>(rounded);
  float* const begin = block.get();
  blocks_.push_back(std::move(block));
  return {begin, static_cast<size_t>(count)};
}

}  // namespace poseidon
