// SchedulerActor: going on after the loss of a node (docs/recovery.md).
//
// One path for all losses, in whatever phase: the exchange is held at the survivors (workers, and
// servers that keep what the job goes on from), the lost ranks are filled, and then there is a new
// view and a plan that begins at the iteration to which all can go back. A loss on the way begins
// it anew.
#include <glog/logging.h>

#include <algorithm>
#include <functional>

#include "planner/backups.h"
#include "proto/plan_members.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

bool SchedulerActor::Recovers() const {
  return options_.job.recovery().mode() != Recovery::NONE && phase_ != Phase::kGathering &&
         phase_ != Phase::kEnded;
}

void SchedulerActor::Lose(const std::vector<NodeId>& nodes, const std::string& cause,
                          Duration silent, Outbox& outbox) {
  WriteHold(nodes, {}, cause, outbox);
  round_.Begin(cause, silent, outbox.now);
  std::string names;
  for (const NodeId& id : nodes) {
    const wire::Node node = FindNode(view_, id);
    names += (names.empty() ? "" : ", ") + Describe(node);
    round_.Lose(node);
    // If it lives, was stopped or cut off, it hears so at once.
    const wire::End end = MakeEnd(
        ExitCode::kGivenUp, "the job goes on without this node (" + cause + "); start it again");
    outbox.Send(ToNode(MessageKind::kEnd, id, Payload::FromString(end.SerializeAsString())));
    members_.erase(id);
    roster_.Forget(id);
    leaving_.erase(id);
    declarations_.Forget(id);
    if (id.role == Role::kWorker) times_.Forget(id.rank);
    ++losses_without_progress_[id];
  }
  Tell("lost " + names + ": " + cause, outbox);
  BeginHold(outbox);
}

void SchedulerActor::Hang(const std::string& cause, Duration silent, Outbox& outbox) {
  WriteHold({}, {}, cause, outbox);
  round_.Begin(cause, silent, outbox.now);
  Tell(cause + "; the exchange begins anew", outbox);
  BeginHold(outbox);
}

void SchedulerActor::BeginHold(Outbox& outbox) {
  stalls_ = {};
  stop_at_.reset();
  finished_.clear();  // who has come to the end goes back, too
  taking_over_ = false;
  programs_load_ |= phase_ == Phase::kPreparing;
  round_.BeginHold();
  EnterPhase(Phase::kHolding, outbox);
  RepeatRecovery(outbox);
  TryRegroup(outbox);
}

bool SchedulerActor::AllHeld() const {
  return std::ranges::all_of(
      members_, [this](const NodeId& node) { return !IsHeld(node) || round_.Has(node); });
}

bool SchedulerActor::IsHeld(const NodeId& node) const {
  return node.role == Role::kWorker || GoesBackAtServers(plan_.plan());
}

void SchedulerActor::RepeatRecovery(Outbox& outbox) {
  if (IsCutOff()) return outbox.SetTimer(kRepeatRecovery, timing_.interval);
  if (phase_ == Phase::kHolding) {
    for (const NodeId& node : members_) {
      if (!IsHeld(node) || round_.Has(node)) continue;
      Envelope hold = ToNode(MessageKind::kHold, node, {});
      hold.step = round_.hold();
      outbox.Send(std::move(hold));
    }
  } else if (phase_ == Phase::kPreparing) {
    for (const NodeId& node : members_) {
      if (answered_.contains(node)) continue;
      outbox.Send(ToNode(MessageKind::kView, node, view_body_));
      outbox.Send(ToNode(MessageKind::kPlan, node, plan_body_));
    }
  }
  if (round_.active() || taking_over_) outbox.SetTimer(kRepeatRecovery, timing_.interval);
}

void SchedulerActor::OnHoldings(const Envelope& envelope, Outbox& outbox) {
  wire::Holdings holdings;
  if (phase_ != Phase::kHolding || envelope.step != round_.hold() || !IsHeld(envelope.from.node) ||
      !members_.contains(envelope.from.node) ||
      !holdings.ParseFromString(envelope.body.ToString())) {
    return;
  }
  round_.Add(envelope.from.node, holdings);
  TryRegroup(outbox);
}

void SchedulerActor::TryRegroup(Outbox& outbox) {
  if (phase_ != Phase::kHolding || !AllHeld()) return;
  EnterPhase(Phase::kRegrouping, outbox);
  // Not before: a supervisor may start another process in the place of one that has ended.
  FillWithSpares(outbox);
  if (!roster_.complete() && Shrinks()) Shrink(outbox);
  if (!roster_.complete()) {
    Tell("waiting for another process to be " + roster_.Missing() + ", for at most " +
             SecondsText(*DeadlineOf(Phase::kRegrouping)),
         outbox);
  }
  TryGoOn(outbox);
}

void SchedulerActor::TryGoOn(Outbox& outbox) {
  if (phase_ != Phase::kRegrouping) return;
  const Cut cut = round_.FindCut(plan_.plan());
  // A worker that is left and lacks values has sent no gradient. So nobody has updated any, and
  // worker 0, or who takes its place, can begin the job with the first ones once more. But who has
  // joined under a plan that others had the values of was to get them and has filled in none.
  const bool planned = plan_body_.size() > 0;
  const bool begun = (planned && !plan_.plan().holders().empty()) ||
                     (round_.nobody_answered() && reached_ > first_iteration_);
  if (cut.holders.empty() && begun) {
    return End(ExitCode::kPeerLost,
               "lost every node that had the parameters; poseidon run --restarts=N starts such a "
               "job again from its newest snapshot, which a program of yours has to find itself",
               outbox);
  }
  if (!cut.holders.empty() && cut.lost_chunk) {
    return End(ExitCode::kPeerLost,
               "lost both servers that kept a part of the parameters; poseidon run --restarts=N "
               "starts such a job again from its newest snapshot, which a program of yours has to "
               "find itself",
               outbox);
  }
  if (!roster_.complete()) return;
  if (!cut.holders.empty() && cut.iteration > plan_.plan().start_iteration()) ForgetEarlierLosses();
  if (const std::optional<NodeId> node = LostTooOften()) {
    return End(ExitCode::kPeerLost,
               std::string(RoleName(node->role)) + " " + std::to_string(node->rank) + " was lost " +
                   std::to_string(losses_without_progress_[*node]) +
                   " times in a row without an iteration done in between "
                   "(recovery.give_up_after): " +
                   round_.cause(),
               outbox);
  }
  for (const wire::Node& node : roster_.nodes()) {
    const bool replaces = std::ranges::any_of(
        round_.lost(), [&](const wire::Node& lost) { return IdOf(lost) == IdOf(node); });
    if (!members_.contains(IdOf(node)) && !replaces) round_.Join(node);
  }
  MakeView(view_number_ + 1, outbox);
  if (plan_body_.size() == 0) {
    round_.End(0, 0, outbox.now);
    EnterPhase(Phase::kDeclaring, outbox);
    return CountDeclared(outbox);
  }
  wire::PlanAndModel next;
  try {
    next = NextPlan(cut);
  } catch (const Error& error) {
    return End(error.exit_code(), error.what(), outbox);
  }
  SendPlan(next, outbox);
}

void SchedulerActor::PlaceBackupsOnHosts(Plan& plan, Outbox& outbox) {
  if (!KeepsAtServers(plan)) return;
  std::map<int, std::string> by_rank;
  for (const wire::Node& node : view_.nodes()) {
    if (IdOf(node).role == Role::kServer) by_rank[node.rank()] = node.host();
  }
  std::vector<std::string> hosts;
  for (const auto& [rank, host] : by_rank) hosts.push_back(host);
  PlaceBackups(hosts, plan);
  if (!BackupsShareHosts(hosts, plan)) return;
  Tell(
      "servers of one machine back each other up: the job survives the loss of a server, but not "
      "of that machine",
      outbox);
}

void SchedulerActor::ForgetEarlierLosses() {
  losses_without_progress_.clear();
  for (const wire::Node& node : round_.lost()) ++losses_without_progress_[IdOf(node)];
  hung_.clear();
}

std::optional<NodeId> SchedulerActor::LostTooOften() const {
  for (const auto& [node, losses] : losses_without_progress_) {
    if (losses > options_.job.recovery().give_up_after()) return node;
  }
  return std::nullopt;
}

std::optional<wire::Recovered> SchedulerActor::FinishRecovery(Outbox& outbox) {
  if (!round_.active()) return std::nullopt;
  const int64_t start = plan_.plan().start_iteration();
  wire::Recovered recovered = round_.End(start, std::max(reached_, start), outbox.now);
  recovered.set_workers(Workers());
  recovered.set_still_seconds(ToSeconds(outbox.now - last_progress_));
  outbox.CancelTimer(kRepeatRecovery);
  return recovered;
}

void SchedulerActor::CheckModel(const Envelope& envelope, Outbox& outbox) {
  wire::Declaration declaration;
  if (!declaration.ParseFromString(envelope.body.ToString())) return;
  const wire::Node& node = FindNode(view_, envelope.from.node);
  // Of another model the inputs differ, too.
  if (std::hash<std::string>()(declaration.model()) != declared_hash_) {
    return End(ExitCode::kConfigError,
               Describe(node) +
                   ", which took a lost one's rank, declared another model than the others; every "
                   "worker must read the same net and solver files",
               outbox);
  }
  // The first values are its own, as it has found them. While a job goes back, also under a new
  // scheduler, the plan is the one of before, and others may have values.
  const bool fills = phase_ == Phase::kPreparing && envelope.from.node == SnapshotWriter() &&
                     plan_.plan().holders().empty();
  if (const std::string other = DescribeOtherStart({node, declaration.inputs()}, first_iteration_);
      fills && !other.empty()) {
    return End(ExitCode::kDataError, other, outbox);
  }
  const std::string disagreement =
      DescribeDisagreement({declared_inputs_, {node, WithoutStart(declaration.inputs())}});
  if (!disagreement.empty()) End(ExitCode::kDataError, disagreement, outbox);
}

std::string SchedulerActor::LostNames() const {
  std::string names;
  for (const wire::Node& node : round_.lost()) {
    names += (names.empty() ? "" : ", ") + Describe(node);
  }
  return names;
}

void SchedulerActor::CountDeclared(Outbox& outbox) {
  for (const NodeId& node : std::set<NodeId>(members_)) {
    if (phase_ == Phase::kDeclaring && node.role == Role::kWorker) TryFirstPlan(node, outbox);
  }
}

void SchedulerActor::Tell(const std::string& text, Outbox& outbox) {
  LOG(WARNING) << text;
  wire::Notice notice;
  notice.set_rank(-1);
  notice.set_text(text);
  outbox.Send(MakeEnvelope(MessageKind::kNotice, Here(kApplicationLane), notice));
}

}  // namespace poseidon
