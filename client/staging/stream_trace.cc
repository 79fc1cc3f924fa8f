#include "client/staging/stream_trace.h"

#include <chrono>

#include "core/steady_now.h"

namespace poseidon {
StreamTrace::Moment StreamTrace::Begin(Device& device, DeviceStream stream) const {
  if (trace_ == nullptr) return nullptr;
  auto begin = std::make_shared<Time>();
  device.Notify(stream, [begin] { *begin = SteadyNow(); });
  return begin;
}

void StreamTrace::End(Device& device, DeviceStream stream, const Moment& begin,
                      Trace::Event event) const {
  if (trace_ == nullptr) return;
  device.Notify(stream, [trace = trace_, begin, event = std::move(event)]() mutable {
    event.begin = *begin;
    event.end = SteadyNow();
    trace->Add(std::move(event));
  });
}

}  // namespace poseidon
