#include "simulation/simulated_program.h"

#include <glog/logging.h>

#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr TimerId kWritten = 1;

}  // namespace

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

void ProgramFrame::Fail(const Error& error, Outbox& outbox) {
  OnMessage(MakeEnvelope(MessageKind::kFailed, Here(kApplicationLane),
                         MakeEnd(error.exit_code(), error.what())),
            outbox);
}

void ProgramFrame::End(const wire::End& end, Time now) {
  record_->end = end;
  record_->ended = now;
  on_end_();
}

void SimulatedScheduler::OnProgress(const Envelope& envelope) {
  ++record_->progress_messages;
  if (workers_ == 0) return;
  wire::Progress progress;
  CHECK(progress.ParseFromString(envelope.body.ToString()));
  std::set<int>& ranks = record_->reported[progress.iteration()];
  ranks.insert(progress.rank());
  if (static_cast<int>(ranks.size()) < workers_) return;
  wire::JournalRecord record;
  record.mutable_iteration()->set_number(progress.iteration());
  record_->journal.push_back(std::move(record));
}

void SimulatedScheduler::OnJournal(const Envelope& envelope, Outbox& outbox) {
  CHECK(unwritten_.emplace_back().ParseFromString(envelope.body.ToString()));
  last_record_ = envelope.iteration;
  if (Hangs(outbox.now)) return;
  if (disk_.delay > Duration::zero()) outbox.SetTimer(kWritten, disk_.delay);
  if (disk_.delay == Duration::zero()) WriteDown();
  if (disk_.delay == Duration::zero() || disk_.lies) Confirm(outbox);
}

void SimulatedScheduler::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  if (Hangs(outbox.now)) return;
  WriteDown();
  if (!disk_.lies) Confirm(outbox);
}

void SimulatedScheduler::WriteDown() {
  for (wire::JournalRecord& record : unwritten_) record_->journal.push_back(std::move(record));
  unwritten_.clear();
}

void SimulatedScheduler::Confirm(Outbox& outbox) const {
  Envelope journaled;
  journaled.kind = MessageKind::kJournaled;
  journaled.to = Here(kControlLane);
  journaled.iteration = last_record_;
  outbox.Send(std::move(journaled));
}

void SimulatedScheduler::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kPlan) {
    CHECK(record_->plan.emplace().ParseFromString(envelope.body.ToString()));
    if (workers_ > 0) workers_ = record_->plan->plan().workers();
  } else if (envelope.kind == MessageKind::kJournal) {
    OnJournal(envelope, outbox);
  } else if (envelope.kind == MessageKind::kProgress) {
    OnProgress(envelope);
  } else if (envelope.kind == MessageKind::kRecovered) {
    CHECK(record_->recoveries.emplace_back().ParseFromString(envelope.body.ToString()));
  } else if (envelope.kind == MessageKind::kLinkReport) {
    CHECK(record_->links.emplace_back().ParseFromString(envelope.body.ToString()));
  } else if (envelope.kind == MessageKind::kNotice) {
    wire::Notice notice;
    CHECK(notice.ParseFromString(envelope.body.ToString()));
    record_->notices.push_back(notice.text());
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
