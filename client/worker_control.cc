#include "client/worker_control.h"

#include "client/link_probe.h"
#include "client/sync/sync_lane.h"

namespace poseidon {

WorkerControl::WorkerControl(WorkerOptions options, std::shared_ptr<PlanHandover> plans)
    : options_(std::move(options)), plans_(std::move(plans)), member_(options_.member) {}

void WorkerControl::OnStart(Outbox& outbox) { member_.Start(outbox); }

void WorkerControl::OnTimer(TimerId timer, Outbox& outbox) { member_.OnTimer(timer, outbox); }

void WorkerControl::OnMessage(const Envelope& envelope, Outbox& outbox) {
  switch (envelope.kind) {
    case MessageKind::kPlan:
      if (member_.FromOwnScheduler(envelope)) OnPlan(envelope, outbox);
      return;
    case MessageKind::kStart: {
      if (!member_.FromOwnScheduler(envelope) || context_ == nullptr) return;
      if (envelope.step != PlanNumber()) return;
      member_.StartLanes(context_->plan.plan().lanes(), outbox);
      return Forward(envelope, outbox);
    }
    case MessageKind::kPauseRequest:
    case MessageKind::kPauseAt:
      if (member_.FromOwnScheduler(envelope)) Forward(envelope, outbox);
      return;
    case MessageKind::kLocalReady: {
      Envelope ready = member_.ToScheduler(MessageKind::kReady);
      ready.step = PlanNumber();
      return outbox.Send(std::move(ready));
    }
    case MessageKind::kLinkReport: {
      // The probe's: a stranger would not know the epoch.
      if (envelope.epoch != member_.epoch() || envelope.from.node != member_.self()) return;
      Envelope report = member_.ToScheduler(MessageKind::kLinkReport);
      report.body = envelope.body;
      return outbox.Send(std::move(report));
    }
    default: {
      const bool had_joined = member_.joined();
      member_.OnMessage(envelope, outbox);
      if (options_.measure_links && member_.joined() && !had_joined) StartProbe(outbox);
    }
  }
}

uint32_t WorkerControl::PlanNumber() const {
  return static_cast<uint32_t>(context_->plan.plan().number());
}

void WorkerControl::StartProbe(Outbox& outbox) const {
  outbox.Attach(kFirstDataLane,
                std::make_unique<LinkProbe>(LinkProbeOptions{.rank = member_.self().rank,
                                                             .workers = options_.workers,
                                                             .epoch = member_.epoch(),
                                                             .phantom = options_.phantom}));
}

void WorkerControl::Forward(const Envelope& envelope, Outbox& outbox) {
  Envelope forward = envelope;
  forward.to = Here(kApplicationLane);
  outbox.Send(std::move(forward));
}

void WorkerControl::OnPlan(const Envelope& envelope, Outbox& outbox) {
  const auto plan = ParsePlan(envelope.body, options_.member.shared.get());
  if (plan == nullptr) return;
  const int expected = context_ == nullptr ? 0 : context_->plan.plan().number() + 1;
  if (plan->plan().number() != expected) return;
  auto memory = std::make_shared<ModelMemory>(
      *plan, options_.phantom,
      ModelMemory::Devices{.pinned_for = options_.device,
                           .update_factors = options_.devices_update_factors,
                           .pack = options_.devices_pack});
  auto context = std::make_shared<SyncContext>(plan, std::move(memory));
  context->rank = member_.self().rank;
  // Frames of an earlier plan are of another epoch.
  context->epoch = envelope.epoch + static_cast<uint64_t>(expected);
  context->stall_deadline = options_.stall_deadline;
  context->phantom = options_.phantom;
  context->devices_update_factors = options_.devices_update_factors;
  if (options_.count_peers) context->CountPeers();
  for (int lane = 0; lane < context->plan.plan().lanes(); ++lane) {
    outbox.Attach(kFirstDataLane + lane, std::make_unique<SyncLane>(context, lane, options_.trace));
  }
  if (context->plan.plan().window_bytes() > 0) {
    outbox.window_bytes = context->plan.plan().window_bytes();
  }
  context_ = context;
  plans_->Put(std::move(context));
  Forward(envelope, outbox);
}

}  // namespace poseidon
