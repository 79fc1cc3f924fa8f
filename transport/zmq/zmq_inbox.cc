#include "transport/zmq/zmq_inbox.h"

#include <glog/logging.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace poseidon {

ZmqWaker::ZmqWaker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

ZmqWaker::~ZmqWaker() { close(fd_); }

void ZmqWaker::Wake() {
  if (state_.exchange(kWoken) != kAsleep) return;
  const uint64_t one = 1;
  PCHECK(write(fd_, &one, sizeof(one)) == sizeof(one));
}

void ZmqWaker::Stop() {
  stopped_.store(true);
  Wake();
}

bool ZmqWaker::Take() {
  // The plain load spares the common case, "no", a locked instruction per frame.
  return state_.load() == kWoken && state_.exchange(kAwake) == kWoken;
}

bool ZmqWaker::FallAsleep() {
  int awake = kAwake;
  if (!state_.compare_exchange_strong(awake, kAsleep)) return false;
  // After the announcement, as Stop() wakes only once and Take() may have had that: whoever stops
  // from here on finds a sleeper.
  if (!stopped()) return true;
  GetUp();
  return false;
}

void ZmqWaker::GetUp() {
  // If it was woken it stays so, for Take().
  int asleep = kAsleep;
  state_.compare_exchange_strong(asleep, kAwake);
}

void ZmqWaker::Clear() {
  // A Wake() that has changed the state and not yet written makes a later poll return for nothing,
  // which is harmless.
  uint64_t count;
  PCHECK(read(fd_, &count, sizeof(count)) == sizeof(count));
}

ZmqInbox::ZmqInbox() : waker_(std::make_shared<ZmqWaker>()) {}

void ZmqInbox::Put(Item item) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    items_.push_back(std::move(item));
  }
  waker_->Wake();
}

std::vector<ZmqInbox::Item> ZmqInbox::TakeAll() {
  std::lock_guard lock(mutex_);
  return std::exchange(items_, {});
}

void ZmqInbox::Close() {
  std::vector<Item> dropped;  // destroyed without the lock: an actor's destructor may take long
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(items_);
}

}  // namespace poseidon
