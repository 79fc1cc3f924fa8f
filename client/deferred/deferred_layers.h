// DeferredLayers: which layers of a training have had their deferred update
// (client/deferred/deferred_update.h) of the iteration, and makes those that can be made.
//
//   DeferredLayers deferred(protocol, model, options, passes);
//   for each iteration:
//     for each layer l, ascending:  until IsFresh(l) && deferred.Update(l): hand on what comes
//   before the plan is left, and at the end:  the same for all layers
//   the plan has changed:  deferred.PlanChanged()
//
// An update is made in the iteration whose forward pass needs it, when its gradient is there. In a
// job that recovers only then does the layer count as the next version (client/sync/kept_state.h):
// whoever goes on from a plan, or takes a lost one's place, has values that need no update any
// more.
//
// Not thread-safe; the training thread's, or the simulated program's lane's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "client/deferred/deferred_update.h"
#include "client/worker_protocol.h"

namespace poseidon {

class DeferredLayers {
 public:
  // How many passes an iteration's gradient is the mean of.
  using Passes = std::function<int64_t(int64_t iteration)>;

  // The protocol has a plan for `model`, whose update rule is deferred. Both outlive this.
  DeferredLayers(const WorkerProtocol& protocol, const ModelSpec& model,
                 const DeferredUpdate::Options& options, Passes passes);

  // Makes the update of a layer that is fresh for the protocol's current iteration, if it has not
  // been made. False if it can't be made yet, for it needs the gradients of all layers.
  bool Update(int layer);
  // The protocol has gone over to another plan, or back: nothing that its values start with needs
  // an update.
  void PlanChanged();

 private:
  std::span<float> StateOf(int layer) const;

  const WorkerProtocol& protocol_;
  const ModelSpec& model_;
  DeferredUpdate update_;
  Passes passes_;
  std::vector<int64_t> updated_;  // by layer: the iteration whose forward pass its values are for
  int64_t begun_ = 0;             // the iteration for which update_.Begin was called last
};

}  // namespace poseidon
