// SchedulerActor: who registers: as one of the job's nodes, in a lost one's place, as a spare that
// waits for one (docs/recovery.md), or too late.
#include <glog/logging.h>

#include <algorithm>

#include "proto/lanes.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

bool SchedulerActor::CanBeAnswered(const wire::Node& guest) {
  const Role role = IdOf(guest).role;
  return (role == Role::kWorker || role == Role::kServer) && guest.endpoints_size() > kControlLane;
}

void SchedulerActor::OnRegister(const Envelope& envelope, Outbox& outbox) {
  wire::Register request;
  if (!request.ParseFromString(envelope.body.ToString()) || !CanBeAnswered(request.node())) return;
  if (request.base() != 0 && request.base() != options_.epoch) {
    return Refuse(
        request.node(),
        "it is in a job of another scheduler, whose journal this one does not have; start "
        "it again to take part in this job",
        outbox, ExitCode::kGivenUp);
  }
  if (left_.contains(request.incarnation())) {
    // Its end has not reached it, as where the scheduler died then. Who asks whether it is still in
    // the job hears this kind, whatever its view is.
    return Answer(request.node(), MessageKind::kRefused, EndOfLeaver(""), outbox);
  }
  if (roster_.WasForgotten(request.incarnation())) {
    return Refuse(request.node(), "the job has gone on without it; start it again", outbox,
                  ExitCode::kGivenUp);
  }
  if (end_) return AnswerAfterEnd(request, outbox);
  // Of whoever it is, it shows that its machine is not cut off from this one.
  if (Recovers()) {
    outbox.Send(MakeEnvelope(MessageKind::kRegistering, Here(kHeartbeatLane), request.node()));
  }
  TakeWordOfDeath(request, outbox);
  // With it nobody may be left.
  if (end_) return AnswerAfterEnd(request, outbox);
  // Its supervisor wants a place for it that another process has by now, as a spare: it takes any,
  // as that one did.
  const bool late = ComesTooLate(request);
  if (late) {
    request.mutable_node()->set_rank(-1);
    spares_.Forget(request.replaces());
  }
  if (KeepsAsSpare(request, outbox) || OnLateRegister(request, late, outbox)) return;
  if (phase_ == Phase::kGathering && AwaitsHolder(request, outbox.now)) return;
  const Roster::Answer answer = roster_.Register(request, outbox.now);
  if (!answer.admitted) return Refuse(request.node(), answer.refusal, outbox);
  if (answer.news && phase_ != Phase::kGathering && !Recovers()) {
    return Refuse(request.node(), "the job has started without it", outbox);
  }
  Admit(answer, outbox);
  const Address address{IdOf(*answer.admitted), kControlLane};
  // It asks again: the view has not reached it.
  if (view_body_.size() > 0 && members_.contains(address.node)) {
    outbox.Send(ToNode(MessageKind::kView, address.node, view_body_));
  }
  if (phase_ == Phase::kGathering && roster_.complete()) {
    MakeView(view_number_, outbox);
    if (const std::string who = roster_.Unreachable(); !who.empty()) Tell(who, outbox);
    EnterPhase(Phase::kDeclaring, outbox);
  }
  if (answer.news) {
    if (address.node.role == Role::kServer) ShrinkToServer(outbox);
    TryGoOn(outbox);
    TryChangeMembers(outbox);
  }
  // It still asks, so the view has not reached it, and a plan that followed was of no use to it.
  if (phase_ == Phase::kPreparing)
    outbox.Send(ToNode(MessageKind::kPlan, address.node, plan_body_));
}

void SchedulerActor::TakeWordOfDeath(const wire::Register& request, Outbox& outbox) {
  const std::optional<NodeId> dead = roster_.Find(request.replaces());
  if (request.replaces() == 0 || !dead) return;
  if (members_.contains(*dead) && Recovers()) {
    Lose({*dead}, "its process has ended", {}, outbox);
  } else if (!members_.contains(*dead)) {
    roster_.Forget(*dead);  // it had joined, and was not needed yet
  }
}

bool SchedulerActor::OnLateRegister(const wire::Register& request, bool late, Outbox& outbox) {
  // Nobody comes to a job that has all it began with, and has not begun: who may come later is to
  // ask again.
  if (IsElastic() && !HasBegun() && roster_.complete() && !roster_.Find(request.incarnation())) {
    return roster_.DifferenceFromJob(request).empty();
  }
  const bool repeated = roster_.Find(request.incarnation()).has_value();
  if (!Recovers() || repeated || !roster_.IsTaken(request)) return false;
  // Perhaps it takes the place of one that will turn out to be lost: it is to ask again.
  if (late) {
    const std::string role = RoleName(static_cast<Role>(request.node().role()));
    Refuse(request.node(),
           "another process has the place of the one that it was started for, and as many " + role +
               "s as recovery.spare_" + role + "s wait as spares",
           outbox);
  }
  return true;
}

bool SchedulerActor::ComesTooLate(const wire::Register& request) const {
  const uint64_t dead = request.replaces();
  return dead != 0 && (roster_.WasForgotten(dead) || spares_.Has(dead)) &&
         roster_.IsTaken(request) && !roster_.Find(request.incarnation());
}

bool SchedulerActor::AwaitsHolder(const wire::Register& request, Time now) {
  const bool known = roster_.AwaitsHolder(request.incarnation());
  if (!roster_.HolderMayBeGone(request, now)) return false;
  if (!known && options_.logs_members) {
    const bool any = request.node().rank() < 0;
    LOG(INFO) << Describe(request.node())
              << " is not answered yet: " << (any ? "all ranks are taken" : "its rank is taken")
              << "; it gets " << (any ? "one whose holder" : "it if its holder")
              << " is not heard any more";
  }
  return true;
}

void SchedulerActor::Admit(const Roster::Answer& answer, Outbox& outbox) {
  const Address address{IdOf(*answer.admitted), kControlLane};
  if (answer.news) {
    outbox.routes.push_back({address, answer.admitted->endpoints(kControlLane)});
    wire::Node joined = *answer.admitted;
    if (!answer.has_rank) joined.set_rank(-1);
    if (options_.logs_members) LOG(INFO) << Describe(joined) << " joined";
  }
  TellRank(address.node, answer.has_rank, outbox);
}

void SchedulerActor::TellRank(const NodeId& node, bool known, Outbox& outbox) {
  wire::View rank;
  rank.set_your_rank(known ? node.rank : -1);
  outbox.Send(MakeEnvelope(MessageKind::kView, {node, kControlLane}, rank));
}

void SchedulerActor::Refuse(const wire::Node& node, const std::string& reason, Outbox& outbox,
                            ExitCode code) {
  LOG(WARNING) << "refused a " << RoleName(static_cast<Role>(node.role())) << " (" << node.host()
               << ", process " << node.pid() << "): " << reason;
  Answer(node, MessageKind::kRefused,
         MakeEnd(code, "the scheduler refused this " +
                           std::string(RoleName(static_cast<Role>(node.role()))) + ": " + reason),
         outbox);
}

void SchedulerActor::Answer(const wire::Node& guest, MessageKind kind, const wire::End& end,
                            Outbox& outbox) {
  const Address address = GuestAddress(guest);
  outbox.routes.push_back({address, guest.endpoints(kControlLane)});
  outbox.Send(MakeEnvelope(kind, address, end));
}

Address SchedulerActor::GuestAddress(const wire::Node& guest) {
  const std::string& endpoint = guest.endpoints(kControlLane);
  auto place = std::ranges::find(guests_, endpoint);
  if (place == guests_.end()) {
    place = guests_.begin() + next_guest_;
    *place = endpoint;
    next_guest_ = (next_guest_ + 1) % kGuests;
  }
  return {{IdOf(guest).role, -1 - static_cast<int>(place - guests_.begin())}, kControlLane};
}

void SchedulerActor::AnswerAfterEnd(const wire::Register& request, Outbox& outbox) {
  const std::optional<NodeId> node = roster_.Find(request.incarnation());
  if (node && members_.contains(*node)) {
    // It may not have heard of the view either, under which it is told.
    outbox.Send(ToNode(MessageKind::kView, *node, view_body_));
    const Payload body = Payload::FromString(end_->SerializeAsString());
    return outbox.Send(ToNode(MessageKind::kEnd, *node, body));
  }
  const std::string difference = roster_.DifferenceFromJob(request);
  if (!difference.empty()) return Refuse(request.node(), difference, outbox);
  Answer(request.node(), MessageKind::kEnd, ForNewcomer(*end_), outbox);
}

bool SchedulerActor::KeepsAsSpare(const wire::Register& request, Outbox& outbox) {
  const uint64_t incarnation = request.incarnation();
  if (roster_.Find(incarnation)) return false;
  // While the others hold, a supervisor may start another process for the lost rank: a spare is
  // given it only then (FillWithSpares), also if it happens to ask again in between.
  const bool waits = phase_ == Phase::kHolding && spares_.Has(incarnation);
  if (!waits && !roster_.IsTaken(request)) {
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
    while (const std::optional<wire::Register> request = spares_.Take(missing.role)) {
      const Roster::Answer answer = roster_.Register(*request, outbox.now);
      if (answer.admitted) {
        Admit(answer, outbox);
        Tell(Describe(*answer.admitted) + ", a spare, takes the place", outbox);
        break;
      }
      // It came before there was a plan, which has more lanes than it offers.
      Refuse(request->node(), answer.refusal, outbox);
    }
  }
}

wire::End SchedulerActor::ForNewcomer(wire::End end) {
  if (end.exit_code() != 0) return end;
  end.set_reason("was not needed: " + end.reason());
  end.set_left(true);
  return end;
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
