// SFB: every worker's sufficient factors reach every other; each rebuilds the gradient's sum by one
// GEMM and updates the layer itself (Xie et al., arXiv 1512.06216).
//
// They go straight to each other worker, or around the ring of workers, each passing on what it
// gets from the left: the same bytes a node, but one stream in and one out instead of P - 1 of
// each.
//
// The update may also be left to the worker's devices (ProductUpdateOf); then this only brings the
// factors together.
//
// The rebuild and the update are Work: this worker's own factors leave, and others' are passed on,
// while they last.
//
// All workers do the same arithmetic on the same stacks in the same order, so their parameters stay
// bit-identical without a server.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "client/sync/initial_broadcast.h"
#include "client/sync/syncer.h"
#include "device/factor_update.h"

namespace poseidon {

// If devices are to update the layer, which is under SFB then, what they have to know of it.
std::optional<ProductUpdate> ProductUpdateOf(const SyncContext& context, int layer);

class FactorBroadcastSyncer : public Syncer {
 public:
  FactorBroadcastSyncer(std::shared_ptr<SyncContext> context, int bucket);

  // Worker 0's own values are fresh at once.
  FrameStatus PublishInitial(const Payload& optimizer_state, Outbox& outbox) override;
  // The engine has written this worker's rows of stack iteration % 2.
  FrameStatus Send(int64_t iteration, Outbox& outbox) override;
  FrameStatus Receive(const Envelope& envelope, Outbox& outbox) override;
  int64_t fresh_iteration() const override { return fresh_iteration_; }
  std::vector<NodeId> missing() const override;

 private:
  // Which factors of an iteration are here: two a worker.
  struct Arrivals {
    std::vector<std::array<bool, 2>> arrived;
    int count = 0;
  };

  FrameStatus ReceiveFactor(const Envelope& envelope, Outbox& outbox);
  // Whether the frame is one that its sender may send, of the right size.
  bool Fits(const Envelope& envelope) const;
  // Marks a factor; with the last one of the current iteration leaves the rebuild. The status says
  // whether that completed the iteration, for there was nothing to do.
  FrameStatus Mark(int64_t iteration, int worker, int factor, Outbox& outbox);
  void SendTo(int worker, int64_t iteration, int chunk, const Payload& body, Outbox& outbox);
  // This worker's factor as it goes on the wire.
  Payload OwnFactor(int64_t iteration, int factor) const;
  // What makes new values of the current iteration's factors.
  std::vector<SlicedArithmetic> RebuildAndUpdate() const;
  // The values are new.
  void FinishIteration();
  // Rows of a worker in one of the two factors of an iteration's stack.
  std::span<float> Slot(int64_t iteration, int worker, int factor) const;
  size_t FactorFloats(int factor) const;
  int Right() const { return (context_->place + 1) % context_->workers(); }
  int Left() const { return (context_->place + context_->workers() - 1) % context_->workers(); }
  const BucketMemory& memory() const { return context_->memory->bucket(bucket_); }
  const BucketPlan& plan() const { return context_->bucket(bucket_); }
  const InnerProductSpec& product() const {
    return context_->plan.model().layers(plan().first_layer()).inner_product();
  }

  std::shared_ptr<SyncContext> context_;
  int bucket_;
  Codec codec_;
  InitialBroadcast initial_;
  std::array<Arrivals, 2> arrivals_;  // of iteration t at t % 2
  int64_t fresh_iteration_;
  bool sent_ = false;  // own factors of the current iteration
};

}  // namespace poseidon
