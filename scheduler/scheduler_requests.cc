// SchedulerActor: what people ask of a job that runs: a snapshot, or its end after an iteration.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "proto/plan_members.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

void SchedulerActor::OnAskSnapshot(Outbox& outbox) {
  if (!HasBegun()) return Tell("training has not begun; there is nothing to write", outbox);
  RequestSnapshot(outbox);
}

NodeId SchedulerActor::SnapshotWriter() const {
  return {Role::kWorker, RankOfWorker(plan_.plan(), 0)};
}

void SchedulerActor::RequestSnapshot(Outbox& outbox) {
  // The worker may be about to report one iteration, and writes it before the next but one.
  snapshot_by_ = reached_ + 2;
  const NodeId writer = SnapshotWriter();
  // Else it is lost, and who writes them when training goes on is asked then.
  if (members_.contains(writer)) outbox.Send(ToNode(MessageKind::kWriteSnapshot, writer, {}));
}

void SchedulerActor::OnStopTraining(Outbox& outbox) {
  const std::string why_at_once = WhyStopsAtOnce();
  if (!why_at_once.empty()) {
    return End(ExitCode::kInterrupted, "a signal stopped it " + why_at_once, outbox);
  }
  if (!std::exchange(stop_wanted_, true)) {
    wire::JournalRecord record;
    record.mutable_stop();
    Write(record, outbox);
  }
  AgreeOnStop(outbox);
}

std::string SchedulerActor::WhyStopsAtOnce() const {
  if (!HasBegun()) return "before training began";
  // Servers bring such workers together after the last iteration, which they know from the start.
  if (plan_.plan().staleness() != 0) {
    return "at once, as workers that run apart (communication.staleness) have no iteration in "
           "common to stop before";
  }
  return "";
}

void SchedulerActor::AgreeOnStop(Outbox& outbox) {
  // Once one worker has finished the others are about to. In other phases it is for the next time
  // that training goes on.
  if (!stop_wanted_ || phase_ != Phase::kTraining || !answered_.empty()) return;
  next_ = {};
  WritePause(outbox);
  // Some may have stopped there, and could not offer a later one.
  if (stop_at_) return StopAt(*stop_at_, outbox);
  BroadcastToWorkers(MessageKind::kPauseRequest, 0, outbox);
  EnterPhase(Phase::kAgreeing, outbox);
}

void SchedulerActor::StopAt(int64_t iteration, Outbox& outbox) {
  stop_at_ = iteration;
  for (const wire::Node& node : view_.nodes()) {
    if (IdOf(node).role == Role::kWorker) SendStop(IdOf(node), outbox);
  }
  EnterPhase(Phase::kTraining, outbox);
}

void SchedulerActor::SendStop(const NodeId& worker, Outbox& outbox) {
  Envelope stop = ToNode(MessageKind::kPauseAt, worker, {});
  stop.iteration = *stop_at_;
  stop.step = kStopThere;
  outbox.Send(std::move(stop));
}

void SchedulerActor::StopAtEnd(Outbox& outbox) {
  StopAt(std::numeric_limits<int64_t>::max(), outbox);
}

void SchedulerActor::EndFinished(Outbox& outbox) {
  // Who took a lost one's rank, or came later, has done fewer.
  int64_t most = 0;
  for (const auto& [rank, report] : finished_) most = std::max(most, report.iterations());
  const int64_t reached = std::max(first_iteration_ + most, reached_);
  if (!stop_wanted_ || reached >= plan_.model().iterations()) {
    return End(ExitCode::kSuccess, "training is finished", outbox);
  }
  // The nodes have done all that they were asked for.
  wire::End end = MakeEnd(ExitCode::kSuccess,
                          "a signal stopped it before iteration " + std::to_string(reached));
  end.set_job_exit_code(static_cast<int>(ExitCode::kInterrupted));
  End(end, outbox);
}

}  // namespace poseidon
