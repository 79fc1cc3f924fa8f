// Journal: the file in which a scheduler writes down its job, so that another process can take the
// job over: OUT/scheduler.journal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/files/journal_file.h"
#include "scheduler/journal/job_state.h"

namespace poseidon {

// Not thread-safe. Whoever has it is the job's only scheduler.
class Journal {
 public:
  // What a journal is for.
  struct Owner {
    uint64_t base = 0;  // the epoch of the job's first view, if this is its first scheduler
    uint64_t fingerprint = 0;
    std::string job_name;
    std::string build;  // BuildIdentity() of this program
  };

  // Reads what an earlier scheduler of the job has left, and begins the next term. Throws
  // ConfigError if another scheduler has the file, or if it is another job's, or of another build
  // and of a job that has not ended, DataError if it has records that are none of this build's, and
  // otherwise as JournalFile does.
  Journal(const std::string& path, const Owner& owner);

  // Of the schedulers before this one; its term is the next.
  const JobState& state() const { return state_; }
  bool has_predecessor() const { return state_.term >= 0; }
  // Hands over all that they have written, once, record after record: of a long job they are many.
  void TakePast(const std::function<void(const wire::JournalRecord&)>& take);
  // Bytes of a record that the last of them had begun.
  int64_t cut_bytes() const { return file_.cut_bytes(); }

  // The record survives this process; with Sync() the machine, too. Throw Error of kFailure.
  void Append(const wire::JournalRecord& record);
  void Sync() { file_.Sync(); }

 private:
  JournalFile file_;
  JobState state_;
};

}  // namespace poseidon
