#include "client/sync_lane.h"

#include <glog/logging.h>

#include "client/factor_broadcast_syncer.h"
#include "client/parameter_server_syncer.h"

namespace poseidon {
namespace {

constexpr TimerId kStallScan = 1;
// A stall is noticed at most this share of the deadline late.
constexpr int kScansPerDeadline = 10;
// Who waits for a server waits longer than the server waits for its workers, whose report is the
// one that names the culprit.
constexpr double kPatienceWithServers = 1.5;

wire::Stalled StallOf(const LayerPlan& plan, const Syncer& syncer) {
  wire::Stalled stalled;
  if (syncer.fresh_iteration() < 0) {
    stalled.set_waiting_for("the initial values of layer " + plan.name());
  } else {
    stalled.set_waiting_for("the " + std::string(plan.scheme() == PS ? "values" : "factors") +
                            " of layer " + plan.name() + ", iteration " +
                            std::to_string(syncer.fresh_iteration()) + ",");
  }
  for (const NodeId& node : syncer.missing()) {
    wire::Node* missing = stalled.add_missing();
    missing->set_role(static_cast<uint32_t>(node.role));
    missing->set_rank(node.rank);
  }
  return stalled;
}

}  // namespace

int PartsOfLayer(const Plan& plan, int layer) {
  if (plan.layers(layer).scheme() == SFB) return 1;
  int parts = 0;
  for (int lane = 0; lane < plan.lanes(); ++lane) {
    if (ParameterServerSyncer::Needed(plan, layer, lane)) ++parts;
  }
  return parts;
}

SyncLane::SyncLane(std::shared_ptr<SyncContext> context, int lane, Trace* trace)
    : context_(std::move(context)), lane_(lane), trace_(trace) {
  const Plan& plan = context_->plan.plan();
  for (int layer = 0; layer < plan.layers_size(); ++layer) {
    std::unique_ptr<Syncer> syncer;
    if (plan.layers(layer).scheme() == SFB) {
      if (plan.layers(layer).lane() == lane_) {
        syncer = std::make_unique<FactorBroadcastSyncer>(context_, layer);
      }
    } else if (ParameterServerSyncer::Needed(plan, layer, lane_)) {
      syncer = std::make_unique<ParameterServerSyncer>(context_, layer, lane_);
    }
    if (syncer != nullptr) layers_[layer].syncer = std::move(syncer);
  }
}

void SyncLane::OnStart(Outbox& outbox) {
  outbox.SetTimer(kStallScan, context_->stall_deadline / kScansPerDeadline);
}

void SyncLane::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kTraining) return AwaitInitialValues(outbox.now);
  const auto found = layers_.find(envelope.bucket);
  const bool local =
      envelope.kind == MessageKind::kGradientReady || envelope.kind == MessageKind::kPublishInitial;
  if (!local && envelope.epoch != context_->epoch) return Drop(envelope, false);
  if (found == layers_.end()) {
    if (!local) Drop(envelope, true);
    return;  // the application tells all lanes; this one has no part of the layer
  }
  Entry& entry = found->second;
  Reception reception = Reception::kTaken;
  if (envelope.kind == MessageKind::kPublishInitial) {
    reception = entry.syncer->PublishInitial(outbox);
  } else if (envelope.kind == MessageKind::kGradientReady) {
    TraceMoment("send", envelope, outbox);
    entry.waiting_since = outbox.now;
    reception = entry.syncer->Send(envelope.iteration, outbox);
  } else {
    reception = entry.syncer->Receive(envelope, outbox);
    if (reception == Reception::kTaken) TraceMoment("arrived", envelope, outbox);
  }
  OnReception(reception, envelope, entry, outbox);
}

void SyncLane::AwaitInitialValues(Time now) {
  for (auto& [layer, entry] : layers_) {
    if (entry.syncer->fresh_iteration() < 0) entry.waiting_since = now;
  }
}

void SyncLane::OnReception(Reception reception, const Envelope& envelope, Entry& entry,
                           Outbox& outbox) {
  switch (reception) {
    case Reception::kTaken:
      return;
    case Reception::kOld:
      return Drop(envelope, false);
    case Reception::kForeign:
      return Drop(envelope, true);
    case Reception::kFresh:
      break;
  }
  entry.waiting_since.reset();
  Envelope fresh;
  fresh.kind = MessageKind::kLayerFresh;
  fresh.to = Here(kApplicationLane);
  fresh.epoch = context_->epoch;
  fresh.bucket = envelope.bucket;
  fresh.iteration = entry.syncer->fresh_iteration();
  fresh.happened = outbox.now;
  TraceMoment("fresh", fresh, outbox);
  outbox.Send(std::move(fresh));
}

void SyncLane::Drop(const Envelope& envelope, bool suspicious) {
  ++context_->dropped_frames;
  if (suspicious && logged_.insert(envelope.from.node).second) {
    LOG(WARNING) << "dropped a frame that does not fit: " << KindName(envelope.kind) << " from "
                 << envelope.from.ToString() << ", layer " << envelope.bucket << ", chunk "
                 << envelope.chunk << ", iteration " << envelope.iteration << ", "
                 << envelope.body.size() << " bytes (later ones of this peer are only counted)";
  }
}

void SyncLane::TraceMoment(const char* name, const Envelope& envelope, const Outbox& outbox) {
  if (trace_ == nullptr) return;
  trace_->Add({name, context_->plan.plan().layers(static_cast<int>(envelope.bucket)).name(),
               "lane " + std::to_string(lane_), envelope.iteration, outbox.now, outbox.now});
}

void SyncLane::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  const Time now = outbox.now;
  const Entry* oldest = nullptr;
  uint32_t oldest_layer = 0;
  for (const auto& [layer, entry] : layers_) {
    const bool waits_for_servers = LayerPlanOf(layer).scheme() == PS;
    const double patience = waits_for_servers ? kPatienceWithServers : 1;
    if (!entry.waiting_since ||
        ToSeconds(now - *entry.waiting_since) < patience * ToSeconds(context_->stall_deadline)) {
      continue;
    }
    if (oldest != nullptr && *entry.waiting_since >= *oldest->waiting_since) continue;
    oldest = &entry;
    oldest_layer = layer;
  }
  if (oldest == nullptr) {
    return outbox.SetTimer(kStallScan, context_->stall_deadline / kScansPerDeadline);
  }
  // Once is enough, the scheduler ends the job.
  outbox.Send(MakeEnvelope(MessageKind::kLaneStalled, Here(kControlLane),
                           StallOf(LayerPlanOf(oldest_layer), *oldest->syncer)));
}

}  // namespace poseidon
