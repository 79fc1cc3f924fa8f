#include "device/launch_thread.h"

#include <utility>

#include "core/process/blocked_signals.h"

namespace poseidon {

LaunchThread::LaunchThread() : thread_([this] { Loop(); }) {}

LaunchThread::~LaunchThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LaunchThread::Run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (thrown_ != nullptr) return;
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void LaunchThread::Await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
}

void LaunchThread::Loop() {
  const BlockedSignals blocked(
      kEndingSignals);  // as products of matrices ask for (worker/torch/torch_engine.cc)
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::exchange(work_.front(), {});
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (thrown != nullptr) {
      thrown_ = thrown;
      work_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace poseidon
