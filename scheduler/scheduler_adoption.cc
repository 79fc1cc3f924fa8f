// SchedulerActor: what it writes down, and going on with the job of a scheduler that died
// (docs/recovery.md).
//
// Whoever takes a job over makes a new view of those who were in it, which they accept as later
// than any of the scheduler before. If they were training, they get the plan that they have once
// more, and say that they are ready as they would if that message had been repeated: training has
// not stopped. If the exchange was being stopped, or may have been, it is stopped again. A node
// that does not answer is lost, as at any other time.
#include <glog/logging.h>

#include <algorithm>

#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// Views and holds of one scheduler; those of the next have numbers above.
constexpr int kTermBits = 16;

}  // namespace

void SchedulerActor::TakeOver(Outbox& outbox) {
  const JobState& past = *options_.journal;
  view_number_ = (past.term + 1) << kTermBits;
  round_ = RecoveryRound(static_cast<uint32_t>(view_number_));
  outbox.SetTimer(kDropSilent, timing_.interval);
  if (past.stage == JobState::Stage::kGathering) return EnterPhase(Phase::kGathering, outbox);
  RestoreState(past, outbox);
  MakeView(view_number_, outbox);
  if (past.end) return End(*past.end, outbox);
  using Stage = JobState::Stage;
  const bool stopped = past.stage == Stage::kHolding || past.stage == Stage::kPausing;
  if (stopped || !roster_.complete()) return HoldAgain(past, outbox);
  if (past.plan) return AdoptPlan(past, outbox);
  // Workers declare their models again when they get the view.
  EnterPhase(Phase::kDeclaring, outbox);
}

void SchedulerActor::RestoreState(const JobState& past, Outbox& outbox) {
  for (const auto& [id, member] : past.members) {
    roster_.Restore(member.node, member.incarnation, outbox.now);
    outbox.routes.push_back({{id, kControlLane}, member.node.endpoints(kControlLane)});
  }
  for (const NodeId& id : past.vacated) roster_.Vacate(id);
  if (IsElastic() && past.plan) roster_.OpenTo(MostWorkers());
  for (const uint64_t incarnation : past.gone) roster_.RestoreForgotten(incarnation);
  left_ = past.left;
  first_iteration_ = past.declared.first_iteration();
  declared_hash_ = past.declared.model_hash();
  declared_inputs_ = {past.declared.worker(), WithoutStart(past.declared.inputs())};
  if (past.plan) {
    plan_ = *past.plan;
    plan_body_ = Payload::FromString(plan_.SerializeAsString());
    unreported_ = past.iterations_done;
    roster_.Require(kFirstDataLane + plan_.plan().lanes());
  }
  losses_without_progress_ = past.losses_without_progress;
  reached_ = past.reached;
  stop_wanted_ = past.stops;
  leaving_ = past.leaving;
  if (past.begun) last_progress_ = outbox.now;
}

void SchedulerActor::AdoptPlan(const JobState& past, Outbox& outbox) {
  taking_over_ = true;
  was_training_ = past.stage == JobState::Stage::kTraining;
  if (past.recovering) ContinueRound(past, outbox.now);
  EnterPhase(Phase::kPreparing, outbox);
  RepeatRecovery(outbox);
}

void SchedulerActor::ResumeTraining(Outbox& outbox) {
  taking_over_ = was_training_ = true;
  MakeView(view_number_ + 1, outbox);
  EnterPhase(Phase::kPreparing, outbox);
  RepeatRecovery(outbox);
}

void SchedulerActor::HoldAgain(const JobState& past, Outbox& outbox) {
  programs_load_ = past.recovering.has_value();
  ContinueRound(past, outbox.now);
  // The next scheduler is to know, too, that what was done after the cut is done again.
  if (!past.recovering) WriteHold({}, {}, round_.cause(), outbox);
  BeginHold(outbox);
}

void SchedulerActor::ContinueRound(const JobState& past, Time now) {
  const wire::HoldRecord round = past.recovering.value_or(wire::HoldRecord());
  round_.Begin(
      round.cause().empty() ? "the scheduler was lost while the plan changed" : round.cause(), {},
      now);
  for (const wire::Node& node : round.lost()) round_.Lose(node);
  for (const wire::Node& node : round.left()) round_.Leave(node);
}

void SchedulerActor::Write(const wire::JournalRecord& record, Outbox& outbox) const {
  if (!options_.journal) return;
  outbox.Send(MakeEnvelope(MessageKind::kJournal, Here(kApplicationLane), record));
}

void SchedulerActor::WritePause(Outbox& outbox) const {
  wire::JournalRecord record;
  record.mutable_pause();
  Write(record, outbox);
}

void SchedulerActor::WriteView(Outbox& outbox) const {
  wire::JournalRecord record;
  for (const wire::Node& node : roster_.nodes()) {
    *record.mutable_view()->add_nodes() = node;
    record.mutable_view()->add_incarnations(roster_.IncarnationOf(IdOf(node)));
  }
  for (const NodeId& id : roster_.vacated()) {
    wire::Node& node = *record.mutable_view()->add_vacated();
    node.set_role(static_cast<uint32_t>(id.role));
    node.set_rank(id.rank);
  }
  Write(record, outbox);
}

void SchedulerActor::WriteHold(const std::vector<NodeId>& lost, const std::vector<NodeId>& left,
                               const std::string& cause, Outbox& outbox) const {
  wire::JournalRecord record;
  wire::HoldRecord& hold = *record.mutable_hold();
  hold.set_cause(cause);
  for (const NodeId& id : lost) *hold.add_lost() = FindNode(view_, id);
  for (const NodeId& id : left) *hold.add_left() = FindNode(view_, id);
  for (const std::vector<NodeId>* nodes : {&lost, &left}) {
    for (const NodeId& id : *nodes) hold.add_incarnations(roster_.IncarnationOf(id));
  }
  Write(record, outbox);
}

void SchedulerActor::WriteLeave(const NodeId& worker, bool stays, Outbox& outbox) const {
  wire::JournalRecord record;
  record.mutable_leave()->set_worker(worker.rank);
  record.mutable_leave()->set_stays(stays);
  Write(record, outbox);
}

}  // namespace poseidon
