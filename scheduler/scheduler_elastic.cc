// SchedulerActor: workers that come to a job under way, and that leave it (docs/recovery.md).
//
// One path with losses. All workers pause before the same iteration, as for another plan; then the
// exchange is held as after a loss. As all stand at that iteration nothing is done again. Whoever
// comes gets the parameters from the others as one does that takes a lost one's rank, and whoever
// leaves is needed by nobody any more, for the others have all that it has.
#include <algorithm>

#include "core/arithmetic/torch_update.h"
#include "core/error.h"
#include "core/text/listed.h"
#include "scheduler/agreement/config_difference.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {

int SchedulerActor::MostWorkers() const {
  const Elastic& elastic = options_.job.elastic();
  return elastic.has_max_workers() ? elastic.max_workers() : options_.job.cluster().workers();
}

void SchedulerActor::CheckRate(const UpdateRule& rule) const {
  if (options_.job.elastic().learning_rate() != Elastic::LINEAR) return;
  if (rule.type != "MeanGradient" && !IsTorchType(rule.type)) return;
  throw ConfigError(
      "elastic.learning_rate is LINEAR, but the training program has a solver of its own or sends "
      "the rates; leave the field out, and scale the rate there");
}

std::optional<std::string> SchedulerActor::LetLeave(const NodeId& worker, Outbox& outbox) {
  if (leaving_.contains(worker)) return std::nullopt;
  const std::string cant = Describe(FindNode(view_, worker)) + " can't leave: ";
  if (!IsElastic()) {
    return cant + "the config has no `elastic`, so its loss would end the job";
  }
  const int left = Workers() - static_cast<int>(leaving_.size());
  if (left <= options_.job.elastic().min_workers()) {
    return cant + std::to_string(left) +
           " worker(s) are left, and the job wants that many (elastic.min_workers)";
  }
  leaving_.insert(worker);
  WriteLeave(worker, false, outbox);
  Tell(Describe(FindNode(view_, worker)) + " is about to leave", outbox);
  TryChangeMembers(outbox);
  return std::nullopt;
}

void SchedulerActor::OnLeave(const Envelope& envelope, Outbox& outbox) {
  if (envelope.from.node.role != Role::kWorker) return;
  if (const auto why_not = LetLeave(envelope.from.node, outbox)) Tell(*why_not, outbox);
}

void SchedulerActor::OnLeaveRequest(const Envelope& envelope, Outbox& outbox) {
  wire::LeaveRequest request;
  if (!request.ParseFromString(envelope.body.ToString()) || !CanBeAnswered(request.from())) return;
  const NodeId worker{Role::kWorker, request.worker()};
  std::optional<std::string> why_not;
  if (request.has_job_fingerprint() && request.job_fingerprint() != options_.job_fingerprint) {
    // An earlier job's port may be this one's by now.
    const std::string fields =
        DescribeFields(options_.job, request.has_job() ? &request.job() : nullptr);
    why_not = "--config is not the one that this job runs with" +
              (fields.empty() ? "" : " (" + fields + ")") +
              "; give the job.prototxt in its output directory, or --scheduler=HOST:PORT";
  } else if (!HasBegun()) {
    why_not = "training has not begun; a worker that does not come to a job need not leave it";
  } else if (!members_.contains(worker)) {
    why_not = "the job has no " + worker.ToString() + "; its workers are " +
              Listed(RanksOf(Role::kWorker));
  } else {
    why_not = LetLeave(worker, outbox);
  }
  const std::string about_to =
      Describe(FindNode(view_, worker)) + " is about to leave; its process ends with code 0";
  Answer(request.from(), MessageKind::kLeave,
         MakeEnd(why_not ? ExitCode::kConfigError : ExitCode::kSuccess, why_not.value_or(about_to)),
         outbox);
}

bool SchedulerActor::HasNewcomers() const {
  return std::ranges::any_of(
      roster_.nodes(), [this](const wire::Node& node) { return !members_.contains(IdOf(node)); });
}

void SchedulerActor::KeepMinWorkers(Outbox& outbox) {
  const int least = options_.job.elastic().min_workers();
  while (!leaving_.empty()) {
    const int left = Workers() - static_cast<int>(leaving_.size());
    if (left >= least) return;
    const NodeId worker = *leaving_.begin();
    leaving_.erase(worker);
    WriteLeave(worker, true, outbox);
    Tell(Describe(FindNode(view_, worker)) + " stays: without it " + std::to_string(left) +
             " worker(s) would be left, and the job wants " + std::to_string(least) +
             " (elastic.min_workers); it can leave when another has joined",
         outbox);
  }
}

void SchedulerActor::TryChangeMembers(Outbox& outbox) {
  // Once one worker has finished the others are about to.
  if (!IsElastic() || phase_ != Phase::kTraining || !answered_.empty() || stop_wanted_) return;
  KeepMinWorkers(outbox);
  if (leaving_.empty()) {
    if (!HasNewcomers()) return;
    const Time due = last_start_ + Seconds(options_.job.elastic().regroup_interval_seconds());
    if (outbox.now < due) return outbox.SetTimer(kRegroup, due - outbox.now);
  }
  next_ = {};
  next_.members = true;
  WritePause(outbox);
  BroadcastToWorkers(MessageKind::kPauseRequest, 0, outbox);
  EnterPhase(Phase::kAgreeing, outbox);
}

void SchedulerActor::ChangeMembers(Outbox& outbox) {
  const std::string cause = "the workers change";
  const std::vector<NodeId> left(leaving_.begin(), leaving_.end());
  WriteHold({}, left, cause, outbox);
  round_.Begin(cause, {}, outbox.now);
  const wire::End end = EndOfLeaver(" before iteration " + std::to_string(next_.start));
  for (const NodeId& id : left) {
    round_.Leave(FindNode(view_, id));
    outbox.Send(ToNode(MessageKind::kEnd, id, Payload::FromString(end.SerializeAsString())));
    members_.erase(id);
    left_.insert(roster_.IncarnationOf(id));
    roster_.Forget(id);
    roster_.Vacate(id);
  }
  leaving_.clear();
  BeginHold(outbox);
}

wire::End SchedulerActor::EndOfLeaver(const std::string& when) {
  wire::End end = MakeEnd(ExitCode::kSuccess, "left the job" + when + ", as it was asked to");
  end.set_left(true);
  return end;
}

}  // namespace poseidon
