#include "client/deferred/deferred_layers.h"

#include <utility>

namespace poseidon {

DeferredLayers::DeferredLayers(const WorkerProtocol& protocol, const ModelSpec& model,
                               const DeferredUpdate::Options& options, Passes passes)
    : protocol_(protocol), model_(model), update_(model, options), passes_(std::move(passes)) {
  PlanChanged();
}

void DeferredLayers::PlanChanged() {
  updated_.assign(model_.layers_size(), protocol_.iteration());
  begun_ = protocol_.iteration();
}

std::span<float> DeferredLayers::StateOf(int layer) const {
  const SyncContext& context = protocol_.context();
  const LayerPlace& place = context.memory->place(layer);
  const int64_t floats = OptimizerStatePerParameter(context.rule);
  return context.memory->bucket(place.bucket)
      .optimizer_state[protocol_.iteration() % 2]
      .subspan(place.offset * floats, place.size * floats);
}

bool DeferredLayers::Update(int layer) {
  const int64_t iteration = protocol_.iteration();
  if (updated_[layer] == iteration) return true;
  const SyncContext& context = protocol_.context();
  if (begun_ != iteration) {
    if (update_.needs_all_layers() && !protocol_.AllFresh()) return false;
    begun_ = iteration;
    if (!context.phantom) {
      update_.Begin(passes_(iteration - 1), [this](int l) { return StateOf(l); });
    }
  }
  if (!context.phantom) {
    update_.Apply(context.rule, layer, iteration - 1, context.memory->values(layer),
                  StateOf(layer));
  }
  updated_[layer] = iteration;
  if (context.kept != nullptr) context.kept->Updated(layer, iteration);
  return true;
}

}  // namespace poseidon
