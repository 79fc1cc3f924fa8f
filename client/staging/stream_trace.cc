#include "client/staging/stream_trace.h"

#include <chrono>

namespace poseidon {
namespace {

Time Now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

StreamTrace::Moment StreamTrace::Begin(Device& device, DeviceStream stream) const {
  if (trace_ == nullptr) return nullptr;
  auto begin = std::make_shared<Time>();
  device.Notify(stream, [begin] { *begin = Now(); });
  return begin;
}

void StreamTrace::End(Device& device, DeviceStream stream, const Moment& begin,
                      Trace::Event event) const {
  if (trace_ == nullptr) return;
  device.Notify(stream, [trace = trace_, begin, event = std::move(event)]() mutable {
    event.begin = *begin;
    event.end = Now();
    trace->Add(std::move(event));
  });
}

}  // namespace poseidon
