// SendSpan: the time that something takes to leave a node, as a span of a trace.
#pragma once

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/trace.h"
#include "transport/departure.h"

namespace poseidon {

// Thread-safe.
//
//   const Trace::Event begun{"send", "fc1", "lane 0", 7, now, now};
//   const auto span = std::make_shared<SendSpan>(trace, begun);
//   for (Envelope& envelope : outbox.messages) envelope.departure = span;
class SendSpan : public Departure {
 public:
  // `event` begins and, so far, ends when the envelopes are handed out. `trace` outlives this.
  SendSpan(Trace& trace, Trace::Event event) : trace_(trace), event_(std::move(event)) {}
  // Adds the span, which ends when the last of the envelopes that did leave had left.
  ~SendSpan() override { trace_.Add(std::move(event_)); }

  void Left(Time when) override {
    const std::lock_guard lock(mutex_);
    event_.end = std::max(event_.end, when);
  }

 private:
  Trace& trace_;
  std::mutex mutex_;
  Trace::Event event_;
};

}  // namespace poseidon
