// JournalWriter: writes down what a job tells; nothing if there is no journal, or no longer.
#pragma once

#include "core/error.h"
#include "scheduler/journal/journal.h"

namespace poseidon {

// Not thread-safe.
class JournalWriter {
 public:
  explicit JournalWriter(Journal* journal) : journal_(journal) {}

  // Throws Error, once: a job whose journal can't be written to has to end, and its end can't be
  // written either.
  void Append(const wire::JournalRecord& record, bool sync) {
    if (journal_ == nullptr) return;
    try {
      journal_->Append(record);
      if (sync) journal_->Sync();
    } catch (const Error&) {
      journal_ = nullptr;
      throw;
    }
  }

 private:
  Journal* journal_;
};

}  // namespace poseidon
