// SchedulerActor: failures, stalls and losses, which end the job.
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// Nodes look for stalls ten times a deadline, so their reports of one stall come within a tenth of
// it of each other; twice that leaves time for slow machines.
constexpr double kStallCollection = 0.2;

}  // namespace

void SchedulerActor::OnFailed(const Envelope& envelope, Outbox& outbox) {
  wire::End end;
  if (!end.ParseFromString(envelope.body.ToString())) return;
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
  if (!stalled.ParseFromString(envelope.body.ToString())) return;
  if (stalls_.empty()) {
    outbox.SetTimer(
        kStallsCollected,
        Seconds(kStallCollection * options_.job.communication().stall_deadline_seconds()));
  }
  stalls_.Add(envelope.from.node, std::move(stalled));
}

void SchedulerActor::EndStalled(Outbox& outbox) {
  if (phase_ == Phase::kEnded) return;
  const StallReports::Cause cause = stalls_.FindCause();
  std::string missing;
  for (const NodeId& node : cause.missing) {
    if (!missing.empty()) missing += ", ";
    missing += Describe(FindNode(view_, node));
  }
  End(ExitCode::kDeadlineExceeded,
      Describe(FindNode(view_, cause.waiting)) + " has waited " +
          SecondsText(Seconds(options_.job.communication().stall_deadline_seconds())) + " for " +
          cause.waiting_for + " from " + missing +
          ", whose heartbeat still arrives (communication.stall_deadline_seconds)",
      outbox);
}

void SchedulerActor::OnSilent(const Envelope& envelope, Outbox& outbox) {
  wire::Silent silent;
  if (!silent.ParseFromString(envelope.body.ToString())) return;
  std::string lost;
  for (int i = 0; i < silent.nodes_size(); ++i) {
    if (!lost.empty()) lost += ", ";
    lost += Describe(FindNode(view_, IdOf(silent.nodes(i)))) + ", last heard " +
            std::to_string(static_cast<int64_t>(silent.silent_seconds(i))) + " s ago";
  }
  End(ExitCode::kPeerLost, "lost " + lost, outbox);
}

}  // namespace poseidon
