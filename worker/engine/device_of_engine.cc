#include "worker/engine/device_of_engine.h"

namespace poseidon {

DeviceOfEngine::DeviceOfEngine(Device& device, Computes computes, DeviceStream stream,
                               std::optional<int> cuda_device)
    : device_(device), computes_(computes), stream_(stream), cuda_device_(cuda_device) {}

// What a thread computes is done when it comes here, and an event that never was recorded is waited
// for by nobody.
void DeviceOfEngine::RecordComputed(DeviceEvent& moment) {
  if (computes_ == Computes::kInStream) device_.Record(moment, stream_);
}

void DeviceOfEngine::Copy(void* to, const void* from, size_t bytes, const DeviceEvent& after,
                          DeviceEvent& copied) {
  const DeviceStream batches = device_.batch_stream();
  device_.Wait(batches, after);
  device_.Copy(batches, to, from, bytes);
  device_.Record(copied, batches);
}

void DeviceOfEngine::Await(const DeviceEvent& moment) {
  if (computes_ == Computes::kInStream) {
    device_.Wait(stream_, moment);
  } else {
    device_.Await(moment);
  }
}

}  // namespace poseidon
