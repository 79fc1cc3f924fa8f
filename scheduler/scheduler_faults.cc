// SchedulerActor: failures, stalls and losses, which end the job.
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// Nodes look for stalls ten times a deadline, so their reports of one stall come within a tenth of
// it of each other; twice that leaves time for slow machines.
constexpr double kStallCollection = 0.2;

}  // namespace

void SchedulerActor::OnFailed(const Envelope& envelope, Outbox& outbox) {
  wire::End end;
  if (!end.ParseFromString(envelope.body.ToString())) return;
  // The others go on without who is about to leave, also where it can't wait for that, had to stay,
  // or could not say that it leaves, before the plan that has its place.
  const NodeId& node = envelope.from.node;
  const bool interrupted = end.exit_code() == static_cast<int>(ExitCode::kInterrupted);
  const bool leaves = leaving_.contains(node) || (end.left() && IsElastic() && HasBegun());
  if (interrupted && leaves && members_.contains(node)) {
    return Lose({node}, end.reason(), {}, outbox);
  }
  // The failed node has its own exit code; for the others it is a lost peer.
  wire::End lost = MakeEnd(ExitCode::kPeerLost, Describe(FindNode(view_, envelope.from.node)) +
                                                    " failed: " + end.reason());
  lost.set_job_exit_code(end.exit_code());
  End(lost, outbox);
}

void SchedulerActor::OnStop(const Envelope& envelope, Outbox& outbox) {
  wire::End end;
  if (!end.ParseFromString(envelope.body.ToString())) return;
  End(static_cast<ExitCode>(end.exit_code()), end.reason(), outbox);
}

void SchedulerActor::OnStalled(const Envelope& envelope, Outbox& outbox) {
  wire::Stalled stalled;
  // What began before a recovery ends with it.
  if (round_.active() || !stalled.ParseFromString(envelope.body.ToString())) return;
  if (stalled.last_exchange() && !AllAwaitTheLast(envelope.from.node, outbox.now)) return;
  if (stalls_.empty()) outbox.SetTimer(kStallsCollected, StallCollection());
  stalls_.Add(envelope.from.node, std::move(stalled));
}

bool SchedulerActor::AllAwaitTheLast(const NodeId& node, Time now) {
  if (node.role == Role::kWorker && node.rank < Workers()) awaits_the_last_[node.rank] = now;
  for (int rank = 0; rank < Workers(); ++rank) {
    const auto found = awaits_the_last_.find(rank);
    if (found == awaits_the_last_.end() || now - found->second > StallCollection()) return false;
  }
  return true;
}

Duration SchedulerActor::StallCollection() const {
  return Seconds(kStallCollection * ToSeconds(StallDeadline()));
}

void SchedulerActor::EndUneven(Outbox& outbox) {
  // All who can go back know how many iterations there are, and may be told of late or twice.
  if (Recovers()) return;
  const std::optional<IterationCounts::Uneven> uneven = iteration_counts_.FindUneven();
  if (!uneven || phase_ == Phase::kEnded) return;
  const auto describe = [&](int rank) { return Describe(FindNode(view_, {Role::kWorker, rank})); };
  End(ExitCode::kFailure,
      describe(uneven->finished) + " ended its training after " +
          std::to_string(uneven->finished_after) + " iterations, while " + describe(uneven->ahead) +
          " has done " + std::to_string(uneven->ahead_after) +
          "; all workers must do the same number: are their data of the same length?",
      outbox);
}

void SchedulerActor::EndStalled(Outbox& outbox) {
  if (phase_ == Phase::kEnded || stalls_.empty()) return;
  const StallReports::Cause cause = stalls_.FindCause();
  std::string missing;
  for (const NodeId& node : cause.missing) {
    if (!missing.empty()) missing += ", ";
    missing += Describe(FindNode(view_, node));
  }
  const std::string reason =
      Describe(FindNode(view_, cause.waiting)) + " has waited " + SecondsText(StallDeadline()) +
      " for " + cause.waiting_for + " from " + missing +
      ", whose heartbeat still arrives (communication.stall_deadline_seconds)";
  if (!Recovers()) return End(ExitCode::kDeadlineExceeded, reason, outbox);
  BeginAnew(cause.missing, reason, outbox);
}

void SchedulerActor::BeginAnew(const std::vector<NodeId>& awaited, const std::string& reason,
                               Outbox& outbox) {
  // A frame may have been lost with a connection: once more. Who is waited for again is given up.
  std::vector<NodeId> again;
  for (const NodeId& node : awaited) {
    if (!hung_.insert(node).second && members_.contains(node)) again.push_back(node);
  }
  if (again.empty()) return Hang(reason, StallDeadline(), outbox);
  Lose(again, reason, StallDeadline(), outbox);
}

void SchedulerActor::OnPhaseDeadline(Outbox& outbox) {
  if (phase_ == Phase::kRegrouping && ShrinksAtLast(outbox)) return;
  if (phase_ == Phase::kRegrouping && stop_wanted_) {
    return End(ExitCode::kInterrupted, "a signal stopped it; " + WhatIsLate(), outbox);
  }
  const std::vector<NodeId> late = Awaited();
  if (!Recovers() || late.empty()) {
    return End(ExitCode::kDeadlineExceeded, WhatIsLate(), outbox);
  }
  // Who trains may wait for a frame that is lost; who is to answer the scheduler is at fault
  // itself.
  const bool trains =
      phase_ == Phase::kTraining || phase_ == Phase::kAgreeing || phase_ == Phase::kPausing;
  if (trains) return BeginAnew(late, WhatIsLate(), outbox);
  Lose(late, WhatIsLate(), {}, outbox);
}

void SchedulerActor::OnSilent(const Envelope& envelope, Outbox& outbox) {
  wire::Silent silent;
  // The monitor of an earlier view may have sent it just before this one's, in which another
  // process may have the rank.
  if (!silent.ParseFromString(envelope.body.ToString()) || envelope.epoch != view_.epoch()) return;
  std::string lost;
  std::vector<NodeId> nodes;
  double seconds = 0;
  for (int i = 0; i < silent.nodes_size(); ++i) {
    if (!members_.contains(IdOf(silent.nodes(i)))) continue;  // that is known already
    nodes.push_back(IdOf(silent.nodes(i)));
    seconds = std::max(seconds, silent.silent_seconds(i));
    if (!lost.empty()) lost += ", ";
    lost += Describe(FindNode(view_, IdOf(silent.nodes(i)))) + ", last heard " +
            std::to_string(static_cast<int64_t>(silent.silent_seconds(i))) + " s ago";
  }
  if (nodes.empty()) return;
  if (Recovers()) {
    return Lose(nodes, "no heartbeat for " + std::to_string(static_cast<int64_t>(seconds)) + " s",
                Seconds(seconds), outbox);
  }
  End(ExitCode::kPeerLost, "lost " + lost, outbox);
}

void SchedulerActor::OnCutOff(const Envelope& envelope, Outbox& outbox) {
  wire::CutOff news;
  // The monitor of an earlier view may have sent it just before this one's.
  if (!news.ParseFromString(envelope.body.ToString()) || envelope.epoch != view_.epoch()) return;
  const bool was_cut_off = cut_off_ == wire::CutOff::CUT_OFF;
  cut_off_ = news.state();
  cut_off_in_view_ |= IsCutOff();
  const Duration silent = Seconds(news.silent_seconds());
  if (cut_off_ == wire::CutOff::CUT_OFF) {
    Tell("no other machine has been heard for " + SecondsText(silent) +
             ", so this one seems to be cut off from them; they are given up after " +
             SecondsText(*SchedulerDeadline(options_.job)) +
             " (recovery.scheduler_deadline_seconds)",
         outbox);
  }
  if (!was_cut_off || cut_off_ != wire::CutOff::HEARD) return;
  const std::string cause =
      "the scheduler was cut off from the other machines for " + SecondsText(silent);
  // Anything may have been lost with a connection: that a worker has finished, that all were to
  // pause. What a recovery says is said again until it is answered.
  if (phase_ == Phase::kTraining && !HasNewcomers()) {
    Tell(cause, outbox);
    ResumeTraining(outbox);
  } else if (phase_ == Phase::kHolding || phase_ == Phase::kRegrouping) {
    Tell(cause, outbox);
  } else {
    Hang(cause, silent, outbox);
  }
  // A connection may be silent for as long again (HeartbeatTiming::reconnect_after).
  const std::optional<Duration> deadline = DeadlineOf(phase_);
  if (!deadline) return;
  outbox.SetTimer(kPhaseDeadline, std::max(*deadline, silent + timing_.allowed_silence()));
}

void SchedulerActor::OnLostProcess(const Envelope& envelope, Outbox& outbox) {
  wire::LostProcess lost;
  if (!lost.ParseFromString(envelope.body.ToString())) return;
  const NodeId id{static_cast<Role>(lost.role()), lost.rank()};
  if (Shrinks() && Recovers() && HasBegun()) {
    const bool is_there = members_.contains(id) && roster_.IncarnationOf(id) == lost.incarnation();
    if (is_there) Lose({id}, "its process " + lost.cause(), {}, outbox);
    return;  // else that is known already
  }
  // Before the view is complete it may not have joined, and has no machine and process to name.
  const std::string name = members_.contains(id)
                               ? Describe(FindNode(view_, id))
                               : std::string(RoleName(id.role)) + " " + std::to_string(id.rank);
  const std::string why =
      Shrinks() ? "; before training begins nobody can go on without it (recovery.mode)" : "";
  End(ExitCode::kPeerLost, "lost " + name + ": it " + lost.cause() + why, outbox);
}

}  // namespace poseidon
