// SchedulerActor: what workers tell of the training: iterations, notices, and its end.
#include <algorithm>

#include "scheduler/journal/job_state.h"
#include "scheduler/report/parameter_agreement.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {
void SchedulerActor::OnProgress(const Envelope& envelope, Outbox& outbox) {
  wire::Progress progress;
  if (envelope.from.node.role != Role::kWorker ||
      !progress.ParseFromString(envelope.body.ToString()) || !IsIteration(progress.iteration())) {
    return;
  }
  progress.set_rank(envelope.from.node.rank);
  quiet_.Heard(outbox.now);
  const bool is_test = progress.has_test_accuracy() || progress.has_test_loss();
  if (!is_test) {
    CountProgress(progress.iteration(), outbox.now);
    iteration_counts_.Done(progress.rank(), progress.iteration());
    const bool is_written = snapshot_by_ && envelope.from.node == SnapshotWriter() &&
                            progress.iteration() >= *snapshot_by_;
    if (is_written) snapshot_by_.reset();
  }
  outbox.Send(MakeEnvelope(MessageKind::kProgress, Here(kApplicationLane), progress));
  EndUneven(outbox);
}

void SchedulerActor::CountProgress(int64_t iteration, Time now) {
  const int64_t start = plan_.plan().start_iteration();
  if (iteration < start) return;
  reached_ = std::max(reached_, iteration + 1);
  if (round_.active()) return;
  last_progress_ = now;
  // A worker tells of an iteration when it has computed it. For the plan's second one it needed the
  // values of the first, which others may still lack; for the third it needed all the others'
  // gradients of the second, which they had the values for.
  if (iteration > start + 1) ForgetEarlierLosses();
}

void SchedulerActor::LookForProgress(Outbox& outbox) {
  outbox.SetTimer(kLookForProgress, quiet_.interval());
  // The other phases, and the end of a training, have a deadline of their own.
  const bool has_deadline =
      phase_ != Phase::kTraining || !answered_.empty() || !stalls_.empty() || IsCutOff();
  if (has_deadline) quiet_.Heard(outbox.now);
  const std::optional<Duration> quiet = quiet_.Look(outbox.now);
  if (!quiet) return;
  std::set<NodeId> waiting;
  for (const auto& [rank, said] : awaits_the_last_) {
    if (outbox.now - said <= StallCollection()) waiting.insert({Role::kWorker, rank});
  }
  // The job goes on: a test that all workers take part in, or one of a program's only worker, may
  // take any time.
  Tell("no worker has ended an iteration for " + SecondsText(*quiet) +
           ", and no exchange is overdue: who computes, reads, tests or writes for so long may "
           "hang: " +
           MissingFrom(waiting, false) +
           (reached_ > 0
                ? "; the last iteration that one has ended is " + std::to_string(reached_ - 1)
                : ""),
       outbox);
}

void SchedulerActor::OnNotice(const Envelope& envelope, Outbox& outbox) {
  wire::Notice notice;
  if (envelope.from.node.role != Role::kWorker ||
      !notice.ParseFromString(envelope.body.ToString())) {
    return;
  }
  notice.set_rank(envelope.from.node.rank);
  outbox.Send(MakeEnvelope(MessageKind::kNotice, Here(kApplicationLane), notice));
}

void SchedulerActor::OnFinished(const Envelope& envelope, Outbox& outbox) {
  if (envelope.from.node.role != Role::kWorker) return;
  // The training has come to its end before the iteration to pause before. Whoever has offered one
  // may be waiting to be told which.
  if (phase_ == Phase::kAgreeing) StopAtEnd(outbox);
  if (phase_ == Phase::kPausing) EnterPhase(Phase::kTraining, outbox);
  if (phase_ != Phase::kTraining) return;
  wire::WorkerReport report;
  if (answered_.contains(envelope.from.node) || !report.ParseFromString(envelope.body.ToString())) {
    return;
  }
  answered_.insert(envelope.from.node);
  if (answered_.size() == 1) outbox.SetTimer(kPhaseDeadline, *DeadlineOf(phase_));
  report.set_rank(envelope.from.node.rank);
  outbox.Send(MakeEnvelope(MessageKind::kFinished, Here(kApplicationLane), report));
  report.clear_buckets();
  report.clear_peers();
  iteration_counts_.Finished(report.rank());
  finished_[report.rank()] = std::move(report);
  EndUneven(outbox);
  if (phase_ == Phase::kEnded) return;
  if (static_cast<int>(answered_.size()) < Workers()) return;
  const std::string difference = DescribeParameterDifference(finished_, view_);
  if (!difference.empty()) return End(ExitCode::kParametersDiffer, difference, outbox);
  EndFinished(outbox);
}

}  // namespace poseidon
