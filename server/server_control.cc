#include "server/server_control.h"

#include <new>
#include <utility>

#include "core/error.h"
#include "proto/plan_members.h"
#include "proto/update_rule_message.h"
#include "transport/held_lane.h"

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
    case MessageKind::kHold:
      if (member_.FromOwnScheduler(envelope)) OnHold(envelope, outbox);
      return;
    case MessageKind::kLaneHeld:
      return OnLaneHeld(envelope, outbox);
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
    if (plan.plan().number() == plans_ - 1 && !hold_) SendReady(outbox);
    return;
  }
  if (PlaceOfServer(plan.plan(), member_.self().rank) < 0) return;  // the job goes on without it
  plans_ = plan.plan().number() + 1;
  lanes_ = plan.plan().lanes();
  try {
    MakeShards(plan, outbox);
  } catch (const std::bad_alloc&) {
    throw Error(ExitCode::kFailure,
                "not enough memory for this server's share of the model; use more servers");
  }
  layout_ = plan.plan().layout();
  hold_.reset();
  if (plan.plan().window_bytes() > 0) outbox.window_bytes = plan.plan().window_bytes();
  SendReady(outbox);
  Envelope forward = envelope;
  forward.to = Here(kApplicationLane);
  outbox.Send(std::move(forward));
}

void ServerControl::MakeShards(const wire::PlanAndModel& plan, Outbox& outbox) {
  // What the servers keep lives on in the next plan; other jobs' servers have nothing to go on
  // from, and neither has one that was asked to hold before its first plan.
  const bool goes_on = hold_ && !shards_.empty() && layout_ == plan.plan().layout() &&
                       !plan.plan().holders().empty();
  const bool recovers = options_.member.scheduler_deadline.has_value();
  const std::vector<std::shared_ptr<ShardState>> before = std::exchange(shards_, {});
  for (int lane = 0; lane < lanes_; ++lane) {
    ShardOptions shard;
    shard.server = PlaceOfServer(plan.plan(), member_.self().rank);
    shard.lane = lane;
    // Frames of an earlier plan are of another epoch.
    shard.epoch = member_.base() + static_cast<uint64_t>(plan.plan().number());
    shard.stall_deadline = options_.stall_deadline;
    shard.phantom = options_.phantom;
    shard.trace = options_.trace;
    shard.iteration = options_.iteration;
    auto state = std::make_shared<ShardState>(
        plan, ToUpdateRule(plan.model().update_rule()),
        ShardState::Options{
            .server = shard.server, .lane = lane, .phantom = shard.phantom, .recovers = recovers});
    if (goes_on) state->TakeOver(*before[lane], plan.plan());
    if (recovers && GoesBackAtServers(plan.plan())) shards_.push_back(state);
    outbox.Attach(kFirstDataLane + lane,
                  std::make_unique<ShardActor>(plan, shard, std::move(state)));
  }
}

void ServerControl::OnHold(const Envelope& envelope, Outbox& outbox) {
  // Said again, until the answer has come.
  if (hold_ == envelope.step) return TrySendHoldings(outbox);
  hold_ = envelope.step;
  running_lanes_ = lanes_;
  for (int lane = 0; lane < lanes_; ++lane) {
    outbox.Attach(kFirstDataLane + lane, std::make_unique<HeldLane>(*hold_));
  }
  TrySendHoldings(outbox);
}

void ServerControl::OnLaneHeld(const Envelope& envelope, Outbox& outbox) {
  if (hold_ != envelope.step) return;
  --running_lanes_;
  TrySendHoldings(outbox);
}

void ServerControl::TrySendHoldings(Outbox& outbox) const {
  if (running_lanes_ > 0) return;
  wire::Holdings holdings;
  holdings.set_layout(layout_);
  for (const std::shared_ptr<ShardState>& shard : shards_) shard->AddTo(holdings);
  Envelope answer = member_.ToScheduler(MessageKind::kHoldings);
  answer.step = *hold_;
  answer.body = Payload::FromString(holdings.SerializeAsString());
  outbox.Send(std::move(answer));
}

void ServerControl::SendReady(Outbox& outbox) const {
  Envelope ready = member_.ToScheduler(MessageKind::kReady);
  ready.step = static_cast<uint32_t>(plans_ - 1);
  outbox.Send(std::move(ready));
}

}  // namespace poseidon
