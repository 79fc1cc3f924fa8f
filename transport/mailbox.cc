#include "transport/mailbox.h"

namespace poseidon {

void Mailbox::Put(Envelope envelope) {
  {
    std::lock_guard lock(mutex_);
    envelopes_.push_back(std::move(envelope));
  }
  arrived_.notify_one();
}

std::optional<Envelope> Mailbox::Take(Duration timeout) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, timeout, [this] { return !envelopes_.empty(); })) {
    return std::nullopt;
  }
  Envelope envelope = std::move(envelopes_.front());
  envelopes_.pop_front();
  return envelope;
}

}  // namespace poseidon
