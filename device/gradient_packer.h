// GradientPacker: packs gradients where they are, on a device, so that fewer bytes cross the bus.
// The bytes, and residuals, are those of core/arithmetic/codec.h's Encode, so the wire, and what
// comes of them, stay the same.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "core/arithmetic/codec.h"
#include "device/device.h"
#include "device/host_device.h"

namespace poseidon {

// Whether floats are packed without a look at others, and without a residual. So each of several
// devices can pack its share.
inline bool PacksEachFloatAlone(const Codec& codec) {
  return codec.type == CodecType::kFp16 || codec.type == CodecType::kBf16;
}

class GradientPacker {
 public:
  virtual ~GradientPacker() = default;
  // Makes what device memory the codec works in: before it packs up to so many floats at a time,
  // and when nothing is being packed. Throws Error if the device does not have it.
  virtual void Reserve(const Codec& codec, size_t floats) = 0;
  // In the stream; all are the device's memory, `packed` begins at a multiple of 4 bytes. Always
  // the same stream, for the memory's sake.
  virtual void Pack(const Codec& codec, std::span<const float> floats, std::span<float> residual,
                    std::span<std::byte> packed, DeviceStream stream) = 0;
};

// For a device whose memory is the host's. A GPU's is in device/cuda/gradient_packer.h.
class HostGradientPacker : public GradientPacker {
 public:
  // `device` outlives this.
  explicit HostGradientPacker(HostDevice& device) : device_(device) {}
  void Reserve(const Codec& /*codec*/, size_t /*floats*/) override {}
  void Pack(const Codec& codec, std::span<const float> floats, std::span<float> residual,
            std::span<std::byte> packed, DeviceStream stream) override {
    device_.Run(stream, [=] { Encode(codec, floats, residual, packed); });
  }

 private:
  HostDevice& device_;
};

}  // namespace poseidon
