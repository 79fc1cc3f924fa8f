#include "client/worker_control.h"

#include <utility>

#include "client/link_probe.h"
#include "client/sync/sync_lane.h"
#include "proto/plan_members.h"
#include "transport/held_lane.h"

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
      if (envelope.step != PlanNumber() || !std::exchange(start_awaited_, false)) return;
      member_.StartLanes(context_->plan.plan().lanes(), outbox);
      return Forward(envelope, outbox);
    }
    case MessageKind::kPauseRequest:
    case MessageKind::kPauseAt:
    case MessageKind::kWriteSnapshot:
      if (member_.FromOwnScheduler(envelope)) Forward(envelope, outbox);
      return;
    case MessageKind::kLocalReady:
      return OnLocalReady(envelope, outbox);
    case MessageKind::kHold:
      if (member_.FromOwnScheduler(envelope)) OnHold(envelope, outbox);
      return;
    case MessageKind::kLaneHeld:
      return OnLaneHeld(envelope, outbox);
    case MessageKind::kLinkReport: {
      // The probe's: a stranger would not know the epoch.
      if (envelope.epoch != member_.epoch() || envelope.from.node != member_.self()) return;
      Envelope report = member_.ToScheduler(MessageKind::kLinkReport);
      report.body = envelope.body;
      return outbox.Send(std::move(report));
    }
    default: {
      const uint64_t before = member_.epoch();
      member_.OnMessage(envelope, outbox);
      // Under a later view all measure anew: another may have taken a lost one's place.
      const bool measure = !options_.measured_distances.empty() && context_ == nullptr;
      if (measure && member_.epoch() != before) StartProbe(outbox);
    }
  }
}

uint32_t WorkerControl::PlanNumber() const {
  return static_cast<uint32_t>(context_->plan.plan().number());
}

void WorkerControl::StartProbe(Outbox& outbox) const {
  outbox.Attach(kFirstDataLane, std::make_unique<LinkProbe>(
                                    LinkProbeOptions{.rank = member_.self().rank,
                                                     .workers = options_.workers,
                                                     .distances = options_.measured_distances,
                                                     .epoch = member_.epoch(),
                                                     .phantom = options_.phantom}));
}

void WorkerControl::Forward(const Envelope& envelope, Outbox& outbox) {
  Envelope forward = envelope;
  forward.to = Here(kApplicationLane);
  outbox.Send(std::move(forward));
}

void WorkerControl::OnLocalReady(const Envelope& envelope, Outbox& outbox) {
  if (context_ == nullptr || envelope.step != PlanNumber()) return;
  program_loads_ = false;
  if (hold_) return TrySendHoldings(outbox);
  ready_ = true;
  SendReady(outbox);
}

void WorkerControl::SendReady(Outbox& outbox) {
  start_awaited_ = true;
  Envelope ready = member_.ToScheduler(MessageKind::kReady);
  ready.step = PlanNumber();
  outbox.Send(std::move(ready));
}

void WorkerControl::OnHold(const Envelope& envelope, Outbox& outbox) {
  // Said again, until the answer has come.
  if (hold_ == envelope.step) return TrySendHoldings(outbox);
  hold_ = envelope.step;
  running_lanes_ = context_ == nullptr ? 0 : context_->plan.plan().lanes();
  for (int lane = 0; lane < running_lanes_; ++lane) {
    outbox.Attach(kFirstDataLane + lane, std::make_unique<HeldLane>(*hold_));
  }
  if (context_ != nullptr) {
    Envelope forward = envelope;
    forward.iteration = context_->plan.plan().number();
    Forward(forward, outbox);
  }
  TrySendHoldings(outbox);
}

void WorkerControl::OnLaneHeld(const Envelope& envelope, Outbox& outbox) {
  if (hold_ != envelope.step) return;
  --running_lanes_;
  TrySendHoldings(outbox);
}

void WorkerControl::TrySendHoldings(Outbox& outbox) {
  if (running_lanes_ > 0 || program_loads_) return;
  wire::Holdings holdings;
  if (context_ != nullptr && context_->kept != nullptr) {
    holdings.set_complete(context_->kept->complete());
    holdings.set_layout(context_->plan.plan().layout());
    const std::optional<int64_t> oldest = context_->kept->OldestVersion();
    if (oldest) holdings.set_iteration(*oldest);
  }
  Envelope answer = member_.ToScheduler(MessageKind::kHoldings);
  answer.step = *hold_;
  answer.body = Payload::FromString(holdings.SerializeAsString());
  outbox.Send(std::move(answer));
}

std::shared_ptr<SyncContext> WorkerControl::MakeContext(
    const std::shared_ptr<const wire::PlanAndModel>& plan) const {
  const bool goes_on =
      hold_ && context_ != nullptr && context_->plan.plan().layout() == plan->plan().layout();
  std::shared_ptr<const ModelMemory> memory =
      goes_on ? context_->memory
              : std::make_shared<const ModelMemory>(
                    *plan, ModelMemory::Options{.phantom = options_.phantom,
                                                .recovers = options_.recovers,
                                                .devices = {.allocate = options_.allocate,
                                                            .update_factors = DevicesUpdate(),
                                                            .pack = options_.devices_pack}});
  auto context = std::make_shared<SyncContext>(plan, std::move(memory));
  if (goes_on) {
    context->kept = context_->kept;
  } else if (options_.recovers) {
    context->kept = std::make_shared<KeptState>(plan, context->memory, options_.phantom);
  }
  return context;
}

void WorkerControl::OnPlan(const Envelope& envelope, Outbox& outbox) {
  const auto plan = ParsePlan(envelope.body, options_.member.shared.get());
  if (plan == nullptr) return;
  const int number = plan->plan().number();
  if (context_ != nullptr && number <= context_->plan.plan().number()) {
    // Said again, as an answer may have been lost.
    if (ready_ && !hold_ && number == context_->plan.plan().number()) SendReady(outbox);
    return;
  }
  const int place = PlaceOfWorker(plan->plan(), member_.self().rank);
  if (place < 0) return;  // the job goes on without this worker, and says so
  std::shared_ptr<SyncContext> context = MakeContext(plan);
  program_loads_ = context_ != nullptr;
  ready_ = false;
  hold_.reset();
  context->place = place;
  // Frames of an earlier plan are of another epoch.
  context->epoch = member_.base() + static_cast<uint64_t>(number);
  context->stall_deadline = options_.stall_deadline;
  context->phantom = options_.phantom;
  context->devices_update = DevicesUpdate();
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
