// StreamTrace: has a device's streams write on a timeline when they did what they were given, which
// is later than when it was given to them. Two call-backs in the stream for each entry, and nobody
// waits.
//
//   const StreamTrace::Moment begin = trace.Begin(device, stream);
//   device.Copy(stream, ...);
//   trace.End(device, stream, begin, {"copy to host", layer, "copy to host", iteration});
//
// Any thread. Throws what Device::Notify throws. Of a device that fails entries are missing.
#pragma once

#include <memory>
#include <utility>

#include "core/time.h"
#include "core/trace.h"
#include "device/device.h"

namespace poseidon {

class StreamTrace {
 public:
  // Written by the stream; null where there is no trace.
  using Moment = std::shared_ptr<Time>;

  // `trace` outlives what is in the streams; null: nothing is put there.
  explicit StreamTrace(Trace* trace) : trace_(trace) {}

  bool on() const { return trace_ != nullptr; }
  // The moment when all that is in the stream is done.
  Moment Begin(Device& device, DeviceStream stream) const;
  // An entry from `begin` to the moment when all that is now in the stream is done; its times are
  // filled in.
  void End(Device& device, DeviceStream stream, const Moment& begin, Trace::Event event) const;

 private:
  Trace* trace_;
};

}  // namespace poseidon
