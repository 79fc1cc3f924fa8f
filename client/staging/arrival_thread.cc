#include "client/staging/arrival_thread.h"

#include <utility>

namespace poseidon {

ArrivalThread::ArrivalThread(LayerExchange& exchange)
    : exchange_(exchange), thread_([this] { Loop(); }) {}

ArrivalThread::~ArrivalThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ArrivalThread::Expect(int number, std::vector<Moment> moments) {
  {
    const std::lock_guard lock(mutex_);
    expected_.push_back({number, std::move(moments)});
  }
  changed_.notify_one();
}

void ArrivalThread::Take(std::vector<int>& numbers) {
  numbers.clear();
  const std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  numbers.swap(came_);
}

std::optional<ArrivalThread::Expected> ArrivalThread::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ends_ || !expected_.empty(); });
  if (ends_) return std::nullopt;
  Expected next = std::move(expected_.front());
  expected_.pop_front();
  return next;
}

void ArrivalThread::Await(const Expected& expected) {
  for (const Moment& moment : expected.moments) moment.device->Await(*moment.event);
}

void ArrivalThread::Loop() {
  while (const std::optional<Expected> next = Next()) {
    std::optional<Error> failure;
    try {
      Await(*next);
    } catch (const Error& error) {
      failure = error;
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure) {
        failure_ = failure;
      } else {
        came_.push_back(next->number);
      }
    }
    exchange_.Wake();
    if (failure) return;
  }
}

}  // namespace poseidon
