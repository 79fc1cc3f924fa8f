// SchedulerActor: what a monitor is told of where the job stands.
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

const char* SchedulerActor::NameOf(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return "gathering";
    case Phase::kDeclaring:
      return "declaring";
    case Phase::kPreparing:
      return "preparing";
    case Phase::kTraining:
      return "training";
    case Phase::kAgreeing:
      return "agreeing";
    case Phase::kPausing:
      return "pausing";
    case Phase::kHolding:
      return "holding";
    case Phase::kRegrouping:
      return "regrouping";
    case Phase::kEnded:
      break;
  }
  return "ended";
}

std::vector<NodeId> SchedulerActor::Awaited() const {
  const bool waits = phase_ != Phase::kRegrouping && DeadlineOf(phase_).has_value();
  std::vector<NodeId> awaited;
  if (!waits) return awaited;
  for (const NodeId& node : members_) {
    const bool answers = node.role == Role::kWorker || phase_ == Phase::kPreparing ||
                         (phase_ == Phase::kHolding && IsHeld(node));
    const bool answered = phase_ == Phase::kHolding ? round_.Has(node) : answered_.contains(node);
    if (answers && !answered) awaited.push_back(node);
  }
  return awaited;
}

wire::JobPhase SchedulerActor::DescribePhase() const {
  wire::JobPhase phase;
  phase.set_phase(NameOf(phase_));
  const auto add = [](const NodeId& id, wire::Node& node) {
    node.set_role(static_cast<uint32_t>(id.role));
    node.set_rank(id.rank);
  };
  if (phase_ == Phase::kGathering || phase_ == Phase::kRegrouping) {
    const std::string missing = roster_.Missing();
    if (!missing.empty()) phase.set_waiting_for(missing + " to join");
  }
  if (phase_ == Phase::kGathering) return phase;
  for (const NodeId& node : Awaited()) add(node, *phase.add_missing());
  if (!round_.active()) return phase;
  for (const wire::Node& node : round_.lost()) {
    if (!members_.contains(IdOf(node))) add(IdOf(node), *phase.add_lost());
  }
  return phase;
}

void SchedulerActor::TellPhase(Outbox& outbox) {
  if (!options_.job.has_monitor()) return;
  const wire::JobPhase phase = DescribePhase();
  std::string text = phase.SerializeAsString();
  if (text == told_phase_) return;
  told_phase_ = std::move(text);
  outbox.Send(MakeEnvelope(MessageKind::kJobPhase, Here(kApplicationLane), phase));
}

}  // namespace poseidon
