#include "client/staging/factor_staging.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace poseidon {
namespace {

size_t Size(int64_t floats) { return static_cast<size_t>(floats); }

size_t FloatsIn(std::span<const std::span<float>> blobs) {
  size_t floats = 0;
  for (const std::span<float> blob : blobs) floats += blob.size();
  return floats;
}

// Whether the rule is MeanGradient, whose state is all that there is.
bool IsMean(const ProductUpdate& layer) { return layer.rule->deferred; }

void CopyFloats(Device& device, DeviceStream stream, std::span<float> to,
                std::span<const float> from) {
  CHECK_EQ(to.size(), from.size());
  if (!to.empty()) device.Copy(stream, to.data(), from.data(), from.size_bytes());
}

}  // namespace

FactorStaging::FactorStaging(LayerExchange& exchange, std::vector<FactorReplica> replicas,
                             StreamTrace trace)
    : exchange_(exchange), replicas_(std::move(replicas)), trace_(trace) {
  if (replicas_.empty()) return;
  const size_t count = replicas_[0].blobs.size();
  layers_.resize(count);
  size_t largest = 0;
  for (size_t l = 0; l < count; ++l) {
    const std::optional<ProductUpdate> description = exchange.product_update(static_cast<int>(l));
    if (!description) continue;
    layers_[l] = Layer{*description, {}, {}};
    largest = std::max(largest, FloatsIn(replicas_[0].blobs[l]));
  }
  if (largest == 0) return;
  for (const FactorReplica& replica : replicas_) {
    scratch_.push_back(Allocate(*replica.device, largest));
  }
  for (size_t l = 0; l < count; ++l) {
    if (!layers_[l]) continue;
    for (size_t r = 0; r < replicas_.size(); ++r) {
      layers_[l]->memory.push_back(MemoryOf(layers_[l]->description, r, l));
      layers_[l]->factors_there.push_back(replicas_[r].device->MakeEvent());
    }
  }
}

FactorUpdate::Memory FactorStaging::MemoryOf(const ProductUpdate& layer, size_t replica,
                                             size_t index) {
  Device& device = *replicas_[replica].device;
  const std::vector<std::span<float>>& blobs = replicas_[replica].blobs[index];
  const size_t floats = FloatsIn(blobs);
  FactorUpdate::Memory memory = {
      .u = Allocate(device, Size(layer.rows * layer.outputs)),
      .v = Allocate(device, Size(layer.rows * layer.inputs)),
      .gradient = scratch_[replica].first(floats),
      .parameters = {},
      .optimizer_state = Allocate(device, floats * Size(OptimizerStatePerParameter(*layer.rule)))};
  if (IsMean(layer)) {
    memory.parameters = memory.optimizer_state;  // which are not looked at
    return memory;
  }
  for (size_t b = 1; b < blobs.size(); ++b) {
    CHECK(blobs[b].data() == blobs[b - 1].data() + blobs[b - 1].size());
  }
  memory.parameters = {blobs[0].data(), floats};
  return memory;
}

std::span<float> FactorStaging::Allocate(Device& device, size_t floats) {
  if (floats == 0) return {};
  owned_.push_back(device.Allocate(floats * sizeof(float)));
  return {reinterpret_cast<float*>(owned_.back().get()), floats};
}

void FactorStaging::LoadOptimizerState(int layer) {
  const std::span<const float> host = exchange_.optimizer_state(layer);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    CopyFloats(device, device.copy_stream(CopyDirection::kToDevice),
               layers_[layer]->memory[r].optimizer_state, host);
  }
}

void FactorStaging::Apply(int layer, int64_t iteration) {
  Layer& state = *layers_[layer];
  const FactorStack host = exchange_.factors(layer, iteration);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const FactorUpdate::Memory& memory = state.memory[r];
    const std::string number = replicas_.size() > 1 ? " " + std::to_string(r) : "";
    const Trace::Event event = {"copy to device",
                                exchange_.LayerName(layer),
                                "copy to device" + number,
                                iteration + 1,
                                {},
                                {}};
    // What was in this memory before has been used: this worker's own factors come from a forward
    // pass with what was made of it.
    const DeviceStream copies = device.copy_stream(CopyDirection::kToDevice);
    const StreamTrace::Moment copies_begin = trace_.Begin(device, copies);
    CopyFloats(device, copies, memory.u, host.u);
    CopyFloats(device, copies, memory.v, host.v);
    trace_.End(device, copies, copies_begin, event);
    device.Record(*state.factors_there[r], copies);
    device.Wait(device.update_stream(), *state.factors_there[r]);
    const StreamTrace::Moment update_begin = trace_.Begin(device, device.update_stream());
    Update(layer, iteration, r);
    trace_.End(device, device.update_stream(), update_begin,
               {"update", event.layer, "update on device" + number, event.iteration, {}, {}});
  }
}

void FactorStaging::Update(int layer, int64_t iteration, size_t replica) {
  const Layer& state = *layers_[layer];
  const FactorReplica& on = replicas_[replica];
  const FactorUpdate::Memory& memory = state.memory[replica];
  const DeviceStream stream = on.device->update_stream();
  on.update->Apply(state.description, iteration, memory, stream);
  if (!IsMean(state.description)) return;
  std::span<const float> mean = memory.optimizer_state;
  for (const std::span<float> blob : on.blobs[layer]) {
    CopyFloats(*on.device, stream, blob, mean.first(blob.size()));
    mean = mean.subspan(blob.size());
  }
}

void FactorStaging::CopyToHost(int layer) {
  Device& device = *replicas_[0].device;
  const FactorUpdate::Memory& memory = layers_[layer]->memory[0];
  const DeviceStream copies = device.copy_stream(CopyDirection::kToHost);
  if (!IsMean(layers_[layer]->description)) {
    CopyFloats(device, copies, exchange_.buffers(layer).values, memory.parameters);
  }
  CopyFloats(device, copies, exchange_.optimizer_state(layer), memory.optimizer_state);
}

}  // namespace poseidon
