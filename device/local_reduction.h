// LocalReduction: brings together the gradients of a worker's devices, each of which has a replica
// of the net and a part of the worker's batch, and hands their new parameters out again. Each
// device is one share's: after ReduceScatter it has the sum of that share, which it sends to the
// host; what comes back it has first, and AllGather gives it to the others. So each bus carries a
// share of the floats and the network sees one worker.
//
// Everything is work in the devices' streams; nothing waits on the host. In one call all devices
// take part, with the same number of floats.
//
// Thread safety: one thread at a time. Errors are the devices' (device/device.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/host_device.h"

namespace poseidon {

// A device's part of so many floats.
struct LocalShare {
  size_t begin = 0;
  size_t size = 0;
};
// Equal shares in the order of devices; the last has what is left over, fewer than devices, as
// well.
LocalShare ShareOf(size_t floats, size_t devices, size_t device);

class LocalReduction {
 public:
  struct Member {
    std::span<float> floats;  // in the device's memory
    DeviceStream stream;      // of the device
  };

  virtual ~LocalReduction() = default;
  // members[d].floats' share of d becomes the sum of all members'; their other shares are
  // undefined.
  virtual void ReduceScatter(std::span<const Member> members) = 0;
  // All members' floats become each one's own share.
  virtual void AllGather(std::span<const Member> members) = 0;
  // Throws Error with the reason if what was put in the streams has failed; from any thread.
  virtual void Check() const {}
};

// Among devices whose memory is the host's. Sums are taken in the order of devices.
class HostLocalReduction : public LocalReduction {
 public:
  // One or more; they outlive this.
  explicit HostLocalReduction(std::vector<HostDevice*> devices);

  void ReduceScatter(std::span<const Member> members) override;
  void AllGather(std::span<const Member> members) override;

 private:
  // Work that is put in the streams from now on begins when all streams have come this far.
  void Meet(std::span<const Member> members);

  std::vector<HostDevice*> devices_;
  std::vector<std::unique_ptr<DeviceEvent>> there_;  // a device each
};

}  // namespace poseidon
