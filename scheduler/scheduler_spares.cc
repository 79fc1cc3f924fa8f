// SchedulerActor: processes that wait to take a lost one's rank (docs/recovery.md), and those that
// come when the job has ended.
#include <glog/logging.h>

#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

bool SchedulerActor::KeepsAsSpare(const wire::Register& request, Outbox& outbox) {
  const uint64_t incarnation = request.incarnation();
  if (roster_.Find(incarnation) || roster_.WasForgotten(incarnation)) return false;
  if (!roster_.IsTaken(request)) {
    spares_.Forget(incarnation);
    return false;
  }
  const size_t before = spares_.all().size();
  const std::optional<Address> address = spares_.Keep(request, outbox.now);
  if (!address) return false;
  if (spares_.all().size() > before && options_.logs_members) {
    LOG(INFO) << Describe(request.node()) << " waits as a spare";
  }
  outbox.routes.push_back({*address, request.node().endpoints(kControlLane)});
  TellRank(address->node, false, outbox);
  return true;
}

void SchedulerActor::FillWithSpares(Outbox& outbox) {
  for (const NodeId& missing : roster_.MissingNodes()) {
    const std::optional<wire::Register> request = spares_.Take(missing.role);
    if (!request) continue;
    const Roster::Answer answer = roster_.Register(*request, outbox.now);
    Admit(answer, outbox);
    Tell(Describe(*answer.admitted) + ", a spare, takes the place", outbox);
  }
}

wire::End SchedulerActor::ForNewcomer(wire::End end) {
  if (end.exit_code() != 0) return end;
  end.set_reason("was not needed: " + end.reason());
  end.set_left(true);
  return end;
}

void SchedulerActor::AnswerAfterEnd(const wire::Register& request, Outbox& outbox) {
  const std::optional<NodeId> node = roster_.Find(request.incarnation());
  if (node && members_.contains(*node)) {
    // It may not have heard of the view either, under which it is told.
    outbox.Send(ToNode(MessageKind::kView, *node, view_body_));
    const Payload body = Payload::FromString(end_->SerializeAsString());
    return outbox.Send(ToNode(MessageKind::kEnd, *node, body));
  }
  if (roster_.WasForgotten(request.incarnation())) {
    return Refuse(request.node(), kGoneOnWithout, outbox, ExitCode::kGivenUp);
  }
  const std::string difference = roster_.DifferenceFromJob(request);
  if (!difference.empty()) return Refuse(request.node(), difference, outbox);
  Answer(request.node(), MessageKind::kEnd, ForNewcomer(*end_), outbox);
}

void SchedulerActor::EndNewcomers(const wire::End& end, Outbox& outbox) const {
  const wire::End told = ForNewcomer(end);
  // Both without an epoch, as they have no view.
  for (const Spare& spare : spares_.all()) {
    outbox.Send(MakeEnvelope(MessageKind::kEnd, spare.address, told));
  }
  for (const wire::Node& node : roster_.nodes()) {
    if (members_.contains(IdOf(node))) continue;
    outbox.Send(MakeEnvelope(MessageKind::kEnd, {IdOf(node), kControlLane}, told));
  }
}

}  // namespace poseidon
