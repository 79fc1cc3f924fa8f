#include "scheduler/journal/journal_writer.h"

#include <utility>

namespace poseidon {
namespace {

// Between two tries to write to a disk that is full.
constexpr Duration kTryInterval = Seconds(1);

}  // namespace

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
  } catch (const Error& error) {
    NoticeFailure(error, now);
    if (!MustEnd(now)) return std::nullopt;
    journal_ = nullptr;
    throw;
  }
  if (again_at_) news_ = "the journal is written again, and lacks nothing";
  again_at_.reset();
  asked_since_.reset();
  if (!appended_) return std::nullopt;
  try {
    journal_->Sync();
  } catch (const Error&) {
    // What a disk has not taken then may be lost, and a second try would not tell.
    journal_ = nullptr;
    throw;
  }
  asked_.reset();
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
  return ends_ || waiting_bytes_ > kMostWaitingBytes ||
         (asked_since_ && now - *asked_since_ >= kJournalPatience);
}

std::optional<std::string> JournalWriter::TakeNews() { return std::exchange(news_, std::nullopt); }

}  // namespace poseidon
