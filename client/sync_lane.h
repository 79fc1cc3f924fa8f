// SyncLane: the actor of one data lane of a worker. Hands envelopes to the syncers of its layers
// and tells the application when a layer's part is fresh.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "client/syncer.h"
#include "core/trace.h"
#include "transport/actor.h"

namespace poseidon {

// How many lanes a layer has syncers on: that many kLayerFresh make the layer fresh.
int PartsOfLayer(const Plan& plan, int layer);

class SyncLane : public Actor {
 public:
  // `lane` counts data lanes from 0. `trace` outlives the actor and may be null.
  SyncLane(std::shared_ptr<SyncContext> context, int lane, Trace* trace);

  void OnStart(Outbox& outbox) override;
  // From the control lane: kTraining. From the application: kGradientReady (bucket, iteration),
  // kPublishInitial (bucket). From other nodes: kValues, kFactors, kInitialValues. To the
  // application: kLayerFresh (bucket, iteration, happened).
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  struct Entry {
    std::unique_ptr<Syncer> syncer;
    std::optional<Time> waiting_since;
  };

  void AwaitInitialValues(Time now);
  void OnReception(Reception reception, const Envelope& envelope, Entry& entry, Outbox& outbox);
  const LayerPlan& LayerPlanOf(uint32_t layer) const {
    return context_->plan.plan().layers(static_cast<int>(layer));
  }
  void Drop(const Envelope& envelope, bool suspicious);
  void TraceMoment(const char* name, const Envelope& envelope, const Outbox& outbox);

  std::shared_ptr<SyncContext> context_;
  int lane_;
  Trace* trace_;
  std::map<uint32_t, Entry> layers_;
  std::set<NodeId> logged_;  // peers that a log line was written about
};

}  // namespace poseidon
