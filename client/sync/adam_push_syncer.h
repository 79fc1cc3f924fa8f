// ADAM: a layer's sufficient factors go to the one server that owns it, its new values come back
// (Chilimbi et al., Project Adam, OSDI 2014, section 4.2; the paper's baseline). The server
// is the bottleneck: it sends the whole matrix to every worker.
#pragma once

#include <vector>

#include "client/sync/parameter_server_syncer.h"

namespace poseidon {

class AdamPushSyncer : public Syncer {
 public:
  AdamPushSyncer(std::shared_ptr<SyncContext> context, int bucket);

  FrameStatus PublishInitial(const Payload& optimizer_state, Outbox& outbox) override {
    return values_.PublishInitial(optimizer_state, outbox);
  }
  FrameStatus Send(int64_t iteration, Outbox& outbox) override;
  FrameStatus Receive(const Envelope& envelope, Outbox& outbox) override {
    return values_.Receive(envelope, outbox);
  }
  int64_t fresh_iteration() const override { return values_.fresh_iteration(); }
  std::vector<NodeId> missing() const override { return values_.missing(); }

 private:
  std::shared_ptr<SyncContext> context_;
  int bucket_;
  ParameterServerSyncer values_;  // what comes back is what comes back under PS
};

}  // namespace poseidon
