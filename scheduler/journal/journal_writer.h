// JournalWriter: writes down what a job tells, in order, also on a disk that is full for a while.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/time.h"
#include "scheduler/journal/journal.h"

namespace poseidon {

// How long somebody who waits for a record waits for a disk, at most: a decision of the job, of
// which nobody hears before.
inline constexpr Duration kJournalPatience = Seconds(300);
// In this job: less than its nodes wait for a scheduler that says nothing, or it would end for a
// cause that is none.
Duration JournalPatience(const Job& job);
// Likewise for a disk that does not even fail: longer than JournalWriter needs to end the job of
// one that does, which it tries every second, where the deadlines leave so much. The stall deadline
// may be shorter: nobody gives up by that while the scheduler decides.
Duration HangingJournalPatience(const Job& job);
// Records for which nobody waits are for the next scheduler's summary. They wait in memory as long
// as it takes, up to so many bytes, which are those of half a million iterations: of more than
// JobReport takes at once the next scheduler would hear too late.
inline constexpr size_t kMostWaitingBytes = size_t{48} << 20;

// Without a journal, or once it has failed, nothing is written and nobody waits. Not thread-safe.
//
//   writer.Add(record, question);
//   if (const auto answered = writer.Write(SteadyNow())) Answer(*answered);  // now and then, too
class JournalWriter {
 public:
  // `journal` may be null.
  explicit JournalWriter(Journal* journal, Duration patience = kJournalPatience)
      : journal_(journal), patience_(patience) {}

  // Takes a record, for Write. `question`: a number that grows, of who waits until it survives the
  // machine, too.
  void Add(const wire::JournalRecord& record, std::optional<int64_t> question);

  // Writes what there is to write, if it can. Returns the latest question that is answered now,
  // which stands for those before it. Throws Error, once, if the journal has failed for longer than
  // who waits can wait: a job whose journal can't be written to has to end. Nobody waits for the
  // end itself.
  std::optional<int64_t> Write(Time now);

  // A sentence on what has become of the journal, for people.
  std::optional<std::string> TakeNews();

 private:
  struct Waiting {
    wire::JournalRecord record;
    std::optional<int64_t> question;
  };

  void AppendAll();
  void NoticeFailure(const Error& error, Time now);
  bool MustEnd(Time now) const;

  Journal* journal_;  // null: there is none, or no longer
  Duration patience_;
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  bool ends_ = false;                // the job; its end is among those that wait
  std::optional<int64_t> asked_;     // the latest question that is not answered
  std::optional<int64_t> appended_;  // the latest whose record is in the file
  std::optional<Time> asked_since_;  // while nothing can be written
  std::optional<Time> again_at_;     // likewise: when it is tried again
  std::optional<std::string> news_;
};

}  // namespace poseidon
