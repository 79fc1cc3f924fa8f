#include "device/factor_update.h"

#include "core/arithmetic/rebuild.h"

namespace poseidon {
namespace {

void RebuildAndUpdate(const ProductUpdate& layer, int64_t iteration,
                      const FactorUpdate::Memory& memory) {
  RebuildGradient(layer.outputs, layer.inputs, memory.u, memory.v, memory.gradient);
  const auto weights = static_cast<size_t>(layer.outputs * layer.inputs);
  const auto state = static_cast<size_t>(OptimizerStatePerParameter(*layer.rule));
  const auto update = [&](const Multipliers& multipliers, size_t begin, size_t size) {
    Update({*layer.rule, iteration, multipliers, layer.gradient_scale},
           memory.gradient.subspan(begin, size), memory.parameters.subspan(begin, size),
           memory.optimizer_state.subspan(begin * state, size * state));
  };
  update(layer.weights, 0, weights);
  if (memory.parameters.size() > weights) {
    update(layer.bias, weights, memory.parameters.size() - weights);
  }
}

}  // namespace

void HostFactorUpdate::Apply(const ProductUpdate& layer, int64_t iteration, const Memory& memory,
                             DeviceStream stream) {
  device_.Run(stream, [=] { RebuildAndUpdate(layer, iteration, memory); });
}

}  // namespace poseidon
