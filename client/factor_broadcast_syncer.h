// SFB: every worker sends its sufficient factors to every other; each rebuilds the gradient's sum
// by one GEMM and updates the layer itself (Xie et al., arXiv 1512.06216).
//
// All workers do the same arithmetic on the same stacks in the same order, so their parameters stay
// bit-identical without a server.
#pragma once

#include <array>
#include <vector>

#include "client/syncer.h"

namespace poseidon {

class FactorBroadcastSyncer : public Syncer {
 public:
  FactorBroadcastSyncer(std::shared_ptr<SyncContext> context, int layer);

  // Worker 0's own values are fresh at once.
  Reception PublishInitial(Outbox& outbox) override;
  // The engine has written this worker's rows of stack iteration % 2.
  Reception Send(int64_t iteration, Outbox& outbox) override;
  Reception Receive(const Envelope& envelope, Outbox& outbox) override;
  int64_t fresh_iteration() const override { return fresh_iteration_; }
  std::vector<NodeId> missing() const override;

 private:
  // Which factors of an iteration are here: two a worker.
  struct Arrivals {
    std::vector<std::array<bool, 2>> arrived;
    int count = 0;
  };

  Reception ReceiveInitial(const Envelope& envelope);
  Reception ReceiveFactor(const Envelope& envelope);
  // Marks a factor; the reception says whether that completed the current iteration.
  Reception Mark(int64_t iteration, int worker, int factor);
  void RebuildAndUpdate();
  void Move(std::span<float> destination, const Payload& body);
  // Rows of a worker in one of the two factors of an iteration's stack.
  std::span<float> Slot(int64_t iteration, int worker, int factor) const;
  size_t FactorFloats(int factor) const;
  Envelope MakeFrame(MessageKind kind, int worker, int64_t iteration, int chunk) const;
  const LayerMemory& memory() const { return context_->memory->layer(layer_); }
  const LayerPlan& plan() const { return context_->plan.plan().layers(layer_); }
  const LayerSpec& spec() const { return context_->plan.model().layers(layer_); }

  std::shared_ptr<SyncContext> context_;
  int layer_;
  std::array<Arrivals, 2> arrivals_;   // of iteration t at t % 2
  std::vector<bool> initial_arrived_;  // by chunk
  int initial_outstanding_ = 0;
  int64_t fresh_iteration_ = -1;
  bool sent_ = false;  // own factors of the current iteration
};

}  // namespace poseidon
