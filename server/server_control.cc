#include "server/server_control.h"

#include <new>

#include "core/error.h"
#include "proto/plan_members.h"

namespace poseidon {

ServerControl::ServerControl(ServerOptions options)
    : options_(std::move(options)), member_(options_.member) {}

void ServerControl::OnStart(Outbox& outbox) { member_.Start(outbox); }

void ServerControl::OnTimer(TimerId timer, Outbox& outbox) { member_.OnTimer(timer, outbox); }

void ServerControl::OnMessage(const Envelope& envelope, Outbox& outbox) {
  switch (envelope.kind) {
    case MessageKind::kPlan:
      if (member_.FromOwnScheduler(envelope)) OnPlan(envelope, outbox);
      return;
    case MessageKind::kStart:
      if (!member_.FromOwnScheduler(envelope) || static_cast<int>(envelope.step) != plans_ - 1) {
        return;
      }
      return member_.StartLanes(lanes_, outbox);
    default:
      member_.OnMessage(envelope, outbox);
  }
}

void ServerControl::OnPlan(const Envelope& envelope, Outbox& outbox) {
  const auto parsed = ParsePlan(envelope.body, options_.member.shared.get());
  if (parsed == nullptr) return;
  const wire::PlanAndModel& plan = *parsed;
  if (plan.plan().number() < plans_) {
    // Said again, as the answer may have been lost.
    if (plan.plan().number() == plans_ - 1) SendReady(outbox);
    return;
  }
  if (PlaceOfServer(plan.plan(), member_.self().rank) < 0) return;  // the job goes on without it
  plans_ = plan.plan().number() + 1;
  lanes_ = plan.plan().lanes();
  try {
    for (int lane = 0; lane < plan.plan().lanes(); ++lane) {
      ShardOptions shard;
      shard.server = PlaceOfServer(plan.plan(), member_.self().rank);
      shard.lane = lane;
      // Frames of an earlier plan are of another epoch.
      shard.epoch = member_.base() + static_cast<uint64_t>(plan.plan().number());
      shard.stall_deadline = options_.stall_deadline;
      shard.phantom = options_.phantom;
      shard.trace = options_.trace;
      shard.iteration = options_.iteration;
      outbox.Attach(kFirstDataLane + lane, std::make_unique<ShardActor>(plan, shard));
    }
  } catch (const std::bad_alloc&) {
    throw Error(ExitCode::kFailure,
                "not enough memory for this server's share of the model; use more servers");
  }
  if (plan.plan().window_bytes() > 0) outbox.window_bytes = plan.plan().window_bytes();
  SendReady(outbox);
  Envelope forward = envelope;
  forward.to = Here(kApplicationLane);
  outbox.Send(std::move(forward));
}

void ServerControl::SendReady(Outbox& outbox) const {
  Envelope ready = member_.ToScheduler(MessageKind::kReady);
  ready.step = static_cast<uint32_t>(plans_ - 1);
  outbox.Send(std::move(ready));
}

}  // namespace poseidon
