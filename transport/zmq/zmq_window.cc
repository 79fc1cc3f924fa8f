#include "transport/zmq/zmq_window.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "core/steady_now.h"

namespace poseidon {

ZmqWindow::ZmqWindow(std::shared_ptr<const std::atomic<int64_t>> limit,
                     std::shared_ptr<ZmqWaker> waker)
    : limit_(std::move(limit)), waker_(std::move(waker)) {}

bool ZmqWindow::HasRoom(int64_t bytes) const {
  const int64_t held = held_.load();
  return held == 0 || held + bytes <= *limit_;
}

bool ZmqWindow::Admit(int64_t bytes) {
  if (!HasRoom(bytes)) {
    const int64_t limit = *limit_;
    wake_at_.store(std::clamp<int64_t>(limit - bytes, 0, limit / 2));
    // Look again: a Release before the store has woken nobody.
    if (!HasRoom(bytes)) return false;
    wake_at_.store(kNobodyWaits);
  }
  held_.fetch_add(bytes);
  return true;
}

void ZmqWindow::Release(int64_t bytes) {
  const int64_t left = held_.fetch_sub(bytes) - bytes;
  if (left > wake_at_.load()) return;  // also when nobody waits
  if (wake_at_.exchange(kNobodyWaits) != kNobodyWaits) waker_->Wake();
}

namespace {

// What a frame carries through ZeroMQ.
struct Baggage {
  Payload bytes;
  int64_t charge;
  std::shared_ptr<ZmqWindow> window;
  std::shared_ptr<Departure> departure;
  // Written last and read first. ZeroMQ orders the two threads anyway; this says so to
  // ThreadSanitizer, which does not see into ZeroMQ.
  std::atomic<bool> packed{false};
};

void ReleaseFrame(void* /*data*/, void* hint) {
  const std::unique_ptr<Baggage> baggage(static_cast<Baggage*>(hint));
  CHECK(baggage->packed.load(std::memory_order_acquire));
  if (baggage->departure != nullptr) baggage->departure->Left(SteadyNow());
  // The owner first: who sees an empty window may count on the buffers being free.
  baggage->bytes = Payload();
  baggage->window->Release(baggage->charge);
}

}  // namespace

zmq::message_t MakeFrame(Payload bytes, int64_t charge, std::shared_ptr<ZmqWindow> window,
                         std::shared_ptr<Departure> departure) {
  std::unique_ptr<Baggage> baggage(
      new Baggage{std::move(bytes), charge, std::move(window), std::move(departure)});
  const auto view = baggage->bytes.bytes();
  baggage->packed.store(true, std::memory_order_release);
  // ZeroMQ only reads what it sends.
  zmq::message_t frame(const_cast<std::byte*>(view.data()), view.size(), ReleaseFrame,
                       baggage.get());
  static_cast<void>(baggage.release());  // ReleaseFrame deletes it.
  return frame;
}

}  // namespace poseidon
