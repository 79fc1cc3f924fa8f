// StatusBoard: where the scheduler's program puts the job's status, and others read it. Who writes
// never waits for who reads: a status is put there whole and never changed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/time.h"
#include "scheduler/monitor/job_status.h"

namespace poseidon {

// Thread-safe.
class StatusBoard {
 public:
  struct Posted {
    uint64_t version = 0;  // 0: nothing has been published
    std::shared_ptr<const JobStatus> status;
    bool closed = false;  // nothing newer will come
  };

  void Publish(JobStatus status);
  // No more is published; whoever waits need not.
  void Close();

  Posted Latest() const;
  // Waits until something newer than `version` is there or the board is closed, for at most
  // `patience`; returns what is there then.
  Posted WaitForNewer(uint64_t version, Duration patience) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Posted posted_;
};

}  // namespace poseidon
