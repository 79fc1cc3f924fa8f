// PS: a layer's KV pairs go to the servers that own them, new values come back.
#pragma once

#include <vector>

#include "client/syncer.h"

namespace poseidon {

class ParameterServerSyncer : public Syncer {
 public:
  // For the chunks of `layer` that lie on `lane` (a data lane, from 0).
  ParameterServerSyncer(std::shared_ptr<SyncContext> context, int layer, int lane);

  // Worker 0, too, waits for the servers to send the values back.
  Reception PublishInitial(Outbox& outbox) override;
  Reception Send(int64_t iteration, Outbox& outbox) override;
  Reception Receive(const Envelope& envelope, Outbox& outbox) override;
  int64_t fresh_iteration() const override { return fresh_iteration_; }
  std::vector<NodeId> missing() const override;

  // Whether any chunk of the layer lies on the lane.
  static bool Needed(const Plan& plan, int layer, int lane);

 private:
  void SendChunks(MessageKind kind, int64_t iteration, std::span<float> floats, Outbox& outbox);
  void Move(const Chunk& chunk, const Payload& values);
  const LayerPlan& plan() const { return context_->plan.plan().layers(layer_); }

  std::shared_ptr<SyncContext> context_;
  int layer_;
  int lane_;
  std::vector<int> chunks_;    // indices in the layer's plan
  std::vector<bool> arrived_;  // by index in the layer's plan
  int outstanding_ = 0;        // chunks of the awaited iteration that have not come
  bool waiting_ = false;
  int64_t fresh_iteration_ = -1;
};

}  // namespace poseidon
