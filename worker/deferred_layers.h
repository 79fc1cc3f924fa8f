// DeferredLayers: which layers of a training have had their deferred update
// (worker/deferred_update.h) of the iteration, and makes those that can be made.
//
// Not before the iteration has begun whose forward pass needs them: if the job goes over to another
// plan between two iterations, worker 0's values and state are everybody's from then on, and all
// make the update of that state.
//
// Not thread-safe; the training thread's.
#pragma once

#include <cstdint>
#include <vector>

#include "client/worker_session.h"
#include "worker/deferred_update.h"
#include "worker/pass_schedule.h"

namespace poseidon {

class DeferredLayers {
 public:
  // The session has declared `model`, whose update rule is deferred. Both outlive this.
  DeferredLayers(WorkerSession& session, const ModelSpec& model,
                 const DeferredUpdate::Options& options, PassSchedule passes);

  // Makes the update of a layer that the session calls fresh for its current iteration, if it has
  // not been made. False if it can't be made yet, for it needs the gradients of all layers.
  bool Update(int layer);
  // The same, and waits for what it needs.
  void WaitAndUpdate(int layer);

 private:
  bool AllFresh() const;

  WorkerSession& session_;
  const ModelSpec& model_;
  DeferredUpdate update_;
  PassSchedule passes_;
  std::vector<int64_t> updated_;  // by layer: the iteration whose forward pass its values are for
  int64_t begun_;                 // the iteration for which update_.Begin was called last
};

}  // namespace poseidon
