#include "scheduler/journal/journal_writer.h"

#include <algorithm>
#include <utility>

namespace poseidon {
namespace {

// Between two tries to write to a disk that is full.
constexpr Duration kTryInterval = Seconds(1);
// Of the deadline of who waits: the rest is for who hears of it, and may do so late.
constexpr double kShare = 0.75;

}  // namespace

Duration JournalPatience(const Job& job) {
  const double shortest = std::min(
      {job.cluster().join_deadline_seconds(), job.communication().stall_deadline_seconds(),
       job.recovery().scheduler_deadline_seconds(), job.recovery().replacement_deadline_seconds()});
  return std::min(kJournalPatience, Duration(Seconds(kShare * shortest)));
}

Duration HangingJournalPatience(const Job& job) {
  const Duration patience = JournalPatience(job);
  // A sixth of three quarters leaves half of what JournalPatience leaves for who hears of it.
  const Duration longer = patience + std::min(3 * kTryInterval, patience / 6);
  // A disk that has a snapshot to take answers late, and a short stall deadline is no reason to
  // take it for dead: who waits for an exchange meanwhile does not give up before the scheduler
  // does.
  constexpr Duration kLeast = Seconds(15);
  const double shortest =
      std::min({job.cluster().join_deadline_seconds(), job.recovery().scheduler_deadline_seconds(),
                job.recovery().replacement_deadline_seconds()});
  return std::max(longer, std::min(kLeast, Duration(Seconds(kShare * shortest))));
}

void JournalWriter::Add(const wire::JournalRecord& record, std::optional<int64_t> question) {
  if (question) asked_ = question;
  if (journal_ == nullptr) return;
  waiting_.push_back({record, question});
  waiting_bytes_ += record.SpaceUsedLong();
  ends_ |= record.has_end();
}

std::optional<int64_t> JournalWriter::Write(Time now) {
  if (journal_ == nullptr) return std::exchange(asked_, std::nullopt);
  if (again_at_ && now < *again_at_ && !ends_) return std::nullopt;
  try {
    AppendAll();
    if (again_at_) news_ = "the journal is written again, and lacks nothing";
    again_at_.reset();
    asked_since_.reset();
  } catch (const Error& error) {
    NoticeFailure(error, now);
    if (!appended_ && ends_) {
      news_ = std::string(error.what()) + "; it does not tell that the job has ended";
      journal_ = nullptr;
      return std::exchange(asked_, std::nullopt);
    }
    // What has had room before is answered; the rest is tried again.
    if (!appended_ && MustEnd(now)) {
      journal_ = nullptr;
      throw;
    }
  }
  if (!appended_) return std::nullopt;
  try {
    journal_->Sync();
  } catch (const Error&) {
    // What a disk has not taken then may be lost, and a second try would not tell.
    journal_ = nullptr;
    throw;
  }
  if (asked_ == appended_) {
    asked_.reset();
    asked_since_.reset();
  }
  return std::exchange(appended_, std::nullopt);
}

void JournalWriter::AppendAll() {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const Waiting& first = waiting_.front();
    journal_->Append(first.record);
    waiting_bytes_ -= first.record.SpaceUsedLong();
    if (first.question) appended_ = first.question;
  }
}

void JournalWriter::NoticeFailure(const Error& error, Time now) {
  if (!again_at_) {
    news_ = std::string(error.what()) +
            "; what is to be written waits in memory, and this is tried again every second: make "
            "room";
  }
  again_at_ = now + kTryInterval;
  if (asked_ && !asked_since_) asked_since_ = now;
}

bool JournalWriter::MustEnd(Time now) const {
  return waiting_bytes_ > kMostWaitingBytes || (asked_since_ && now - *asked_since_ >= patience_);
}

std::optional<std::string> JournalWriter::TakeNews() { return std::exchange(news_, std::nullopt); }

}  // namespace poseidon
