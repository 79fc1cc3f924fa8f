#include "simulation/simulated_program.h"

#include <glog/logging.h>

namespace poseidon {

void ProgramFrame::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (ended()) return;
  if (envelope.kind == MessageKind::kJoined) {
    wire::View view;
    CHECK(view.ParseFromString(envelope.body.ToString()));
    record_->epoch = view.epoch();
    if (record_->id.role != Role::kScheduler) record_->id.rank = view.your_rank();
    return;
  }
  if (envelope.kind != MessageKind::kEnd && envelope.kind != MessageKind::kFailed) return;
  wire::End end;
  CHECK(end.ParseFromString(envelope.body.ToString()));
  if (envelope.kind == MessageKind::kFailed && record_->id.role != Role::kScheduler) {
    Envelope failed = envelope;
    failed.to = {{Role::kScheduler, 0}, kControlLane};
    failed.epoch = record_->epoch;
    outbox.Send(std::move(failed));
  }
  End(end, outbox.now);
}

void ProgramFrame::End(const wire::End& end, Time now) {
  record_->end = end;
  record_->ended = now;
  on_end_();
}

void SimulatedScheduler::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kPlan) {
    CHECK(record_->plan.emplace().ParseFromString(envelope.body.ToString()));
  } else if (envelope.kind == MessageKind::kProgress) {
    ++record_->progress_messages;
  } else if (envelope.kind == MessageKind::kRecovered) {
    CHECK(record_->recoveries.emplace_back().ParseFromString(envelope.body.ToString()));
  } else if (envelope.kind == MessageKind::kLayerTimes) {
    CHECK(record_->times.emplace().ParseFromString(envelope.body.ToString()));
    if (!replan_) return;
    if (const auto plan = replan_(*record_->plan, *record_->times)) {
      outbox.Send(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), *plan));
    }
  } else if (envelope.kind == MessageKind::kFinished) {
    wire::WorkerReport report;
    CHECK(report.ParseFromString(envelope.body.ToString()));
    record_->reports[report.rank()] = std::move(report);
  } else {
    frame_.OnMessage(envelope, outbox);
  }
}

}  // namespace poseidon
