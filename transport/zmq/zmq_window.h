// Window: how many bytes one peer's socket holds that the kernel has not taken yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <zmq.hpp>

#include "core/payload.h"
#include "transport/departure.h"
#include "transport/zmq/zmq_inbox.h"

namespace poseidon {

// Admit belongs to the lane's thread; Release is called by ZeroMQ's I/O threads.
class ZmqWindow {
 public:
  // `limit` may change meanwhile; what is in the window stays.
  ZmqWindow(std::shared_ptr<const std::atomic<int64_t>> limit, std::shared_ptr<ZmqWaker> waker);

  // Takes room for `bytes`. An empty window has room for anything. False: not now; the waker is
  // woken once there is room, but not before the window is half empty, as waking for every frame
  // would cost more than sending it.
  bool Admit(int64_t bytes);
  void Release(int64_t bytes);
  bool empty() const { return held_.load() == 0; }

 private:
  static constexpr int64_t kNobodyWaits = -1;

  bool HasRoom(int64_t bytes) const;

  const std::shared_ptr<const std::atomic<int64_t>> limit_;
  const std::shared_ptr<ZmqWaker> waker_;
  std::atomic<int64_t> held_{0};
  // Wake when held_ is no more than this.
  std::atomic<int64_t> wake_at_{kNobodyWaits};
};

// A ZeroMQ frame of `bytes` that keeps their owner alive without a copy. When ZeroMQ is done with
// the frame, sent or thrown away, `charge` goes back to the window and `departure`, which may be
// null, hears of it.
zmq::message_t MakeFrame(Payload bytes, int64_t charge, std::shared_ptr<ZmqWindow> window,
                         std::shared_ptr<Departure> departure);

}  // namespace poseidon
