// SchedulerActor: processes that wait to take a lost one's rank (docs/recovery.md).
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

void SchedulerActor::EndNewcomers(const wire::End& end, Outbox& outbox) const {
  wire::End told = end;
  if (end.exit_code() == 0) {
    told.set_reason("was not needed: " + end.reason());
    told.set_left(true);
  }
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
