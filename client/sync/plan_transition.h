// What a training program does when the job goes over to another plan: agrees with the others on an
// iteration to pause before, and takes the state of training from the old plan's buffers to the new
// one's. docs/protocol.md has the whole sequence; WorkerProtocol carries it out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "client/sync/syncer.h"
#include "core/payload.h"
#include "transport/envelope.h"

namespace poseidon {

// Before which iteration this worker pauses. A value.
class PauseAgreement {
 public:
  // kPauseRequest has come during `iteration`. Returns the iteration to offer; this worker does not
  // begin it before it has been told where to pause.
  int64_t Offer(int64_t iteration);
  // kPauseAt has come: no earlier than any worker's offer.
  void Agree(int64_t iteration) { agreed_ = iteration; }

  // What was offered and not answered yet.
  std::optional<int64_t> unanswered() const { return agreed_ ? std::nullopt : offered_; }

  // Before `iteration` begins: whether kPauseAt must be here first, and whether it is this one.
  bool MustWait(int64_t iteration) const { return offered_ == iteration && !agreed_; }
  bool MustPause(int64_t iteration) const { return agreed_ == iteration; }

 private:
  std::optional<int64_t> offered_;
  std::optional<int64_t> agreed_;
};

// What a worker takes from one plan to the next. All workers have the same values and optimizer
// state, so worker 0's start the next plan, as its first values started the first; but the mean
// gradient of rule MeanGradient is in every worker's memory. What a codec with error feedback has
// not sent yet is each worker's own.
//
// Not thread-safe; the training thread's. The lanes must not be using the buffers of either plan
// between SaveFrom and LoadInto: nothing is under way then.
class PlanTransition {
 public:
  // All layers are fresh for `iteration`. On worker 0, and with rule MeanGradient on all, allocates
  // the whole model's optimizer state.
  void SaveFrom(std::shared_ptr<const SyncContext> from, int64_t iteration);
  // Worker 0: the buckets whose servers keep something that has to be fetched; empty for others.
  std::vector<int> BucketsToFetch() const;
  // Whether some of what this plan's servers keep is still to come.
  bool awaits(const std::shared_ptr<SyncContext>& from) const {
    return from_ == from && !complete();
  }
  // A kOptimizerState frame that a lane has passed on; of the plan that it awaits.
  void Receive(const Envelope& envelope);
  // Whether it has all that the context's plan leaves, and LoadInto has not taken it.
  bool has(const std::shared_ptr<SyncContext>& from) const { return from_ == from && complete(); }
  // Whether nothing is still to be fetched.
  bool complete() const { return outstanding_ == 0; }

  // Worker 0, instead of LoadInto: the job's first plan does not start at iteration 0, and this is
  // the optimizer state of the whole model. The values are in memory already.
  void LoadSnapshot(std::shared_ptr<const SyncContext> to, std::vector<float> optimizer_state);
  // After complete(), instead of LoadInto: the optimizer state of the whole model.
  std::vector<float> TakeOptimizerState() { return std::move(*optimizer_state_); }

  // The memory of the next plan is there. Puts into it what the old plan has not sent, where the
  // new one has room for such, and the state that SaveFrom has taken.
  void LoadInto(std::shared_ptr<const SyncContext> to);
  // Worker 0: the bucket's optimizer state in the plan entered, for kPublishInitial; empty if no
  // plan has been left.
  Payload optimizer_state(int bucket) const;
  // The plan has begun: optimizer_state() has been used.
  void Release();

  // Adds what is still not sent of a layer to the layer's gradient of `iteration`, the first dense
  // one in the new plan. Without effect where there is nothing or the gradient is not dense; it is
  // kept then.
  void AddResidual(int layer, int64_t iteration, std::span<float> gradient);
  // Whether that would have an effect.
  bool HasResidual(int layer) const { return owed_.contains(layer); }
  // The job goes back to `iteration`: drops what SaveFrom has taken, and what was added to
  // gradients that are computed again is to be added to those.
  void GoBack(int64_t iteration);
  // The job goes back to no iteration before this one any more.
  void Forget(int64_t iteration);

 private:
  struct Added {
    int64_t iteration = 0;  // of the gradient
    std::vector<float> floats;
  };

  void CountParameters(const ModelSpec& model);
  // Puts optimizer_state_ into to_'s memory where the workers keep it.
  void LoadOptimizerState();
  void SaveResidual();
  // What the plan left has not sent is owed; of buckets with error feedback it becomes their
  // residual.
  void LoadResidual();
  void Owe(int layer, std::span<const float> unsent);
  void SaveOptimizerState(int64_t iteration);
  // Room for what the layers of a bucket of the plan left have not sent.
  void ReserveResidual(const BucketPlan& bucket);
  // Where a bucket's parameters begin in the model's.
  int64_t Begin(const SyncContext& context, int bucket) const;

  // By the model's layers: where each one's parameters begin; at last how many there are.
  std::vector<int64_t> begins_;
  std::shared_ptr<const SyncContext> from_;  // between SaveFrom and LoadInto
  std::shared_ptr<const SyncContext> to_;    // after LoadInto
  int64_t state_ = 0;                        // floats of optimizer state for each parameter
  int64_t outstanding_ = 0;                  // frames
  // In the order of the model's parameters, whatever the plan.
  std::shared_ptr<std::vector<float>> optimizer_state_;
  std::vector<float> residual_;  // of the plan left, between SaveFrom and LoadInto; or empty
  std::set<int> with_residual_;  // its layers
  // By layer: what plans left have not sent.
  std::map<int, std::vector<float>> owed_;
  // By layer: what was owed, and has been added to the gradient of an iteration that the job may go
  // back to.
  std::map<int, Added> added_;
};

}  // namespace poseidon
