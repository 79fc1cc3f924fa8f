#include "worker/deferred_layers.h"

#include <utility>

namespace poseidon {

DeferredLayers::DeferredLayers(WorkerSession& session, const ModelSpec& model,
                               const DeferredUpdate::Options& options, PassSchedule passes)
    : session_(session),
      model_(model),
      update_(model, options),
      passes_(std::move(passes)),
      updated_(model.layers_size(), session.iteration()),
      begun_(session.iteration()) {}

bool DeferredLayers::AllFresh() const {
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    if (!session_.exchange().IsFresh(layer, session_.iteration())) return false;
  }
  return true;
}

bool DeferredLayers::Update(int layer) {
  const int64_t iteration = session_.iteration();
  if (updated_[layer] == iteration) return true;
  if (begun_ != iteration) {
    if (update_.needs_all_layers() && !AllFresh()) return false;
    begun_ = iteration;
    update_.Begin(passes_.PassesOf(iteration - 1),
                  [this](int l) { return std::span<const float>(session_.optimizer_state(l)); });
  }
  update_.Apply(layer, iteration - 1, session_.values(layer), session_.optimizer_state(layer));
  updated_[layer] = iteration;
  return true;
}

void DeferredLayers::WaitAndUpdate(int layer) {
  session_.WaitFresh(layer);
  if (Update(layer)) return;
  for (int other = 0; other < model_.layers_size(); ++other) session_.WaitFresh(other);
  Update(layer);
}

}  // namespace poseidon
