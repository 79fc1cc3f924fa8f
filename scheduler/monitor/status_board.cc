#include "scheduler/monitor/status_board.h"

#include <utility>

namespace poseidon {

void StatusBoard::Publish(JobStatus status) {
  auto next = std::make_shared<JobStatus>(std::move(status));
  std::shared_ptr<const JobStatus> before;  // may be large, and is freed without the lock
  {
    const std::lock_guard lock(mutex_);
    next->version = ++posted_.version;
    before = std::exchange(posted_.status, std::move(next));
  }
  changed_.notify_all();
}

void StatusBoard::Close() {
  {
    const std::lock_guard lock(mutex_);
    posted_.closed = true;
  }
  changed_.notify_all();
}

StatusBoard::Posted StatusBoard::Latest() const {
  const std::lock_guard lock(mutex_);
  return posted_;
}

StatusBoard::Posted StatusBoard::WaitForNewer(uint64_t version, Duration patience) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return posted_.closed || posted_.version > version; });
  return posted_;
}

}  // namespace poseidon
