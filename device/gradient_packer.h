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
#include "device/packing.h"

namespace poseidon {

// Whether floats are packed without a look at others, and without a residual. So each of several
// devices can pack its share.
inline bool PacksEachFloatAlone(const Codec& codec) {
  return codec.type == CodecType::kFp16 || codec.type == CodecType::kBf16;
}

class GradientPacker {
 public:
  virtual ~GradientPacker() = default;
  // Makes what device memory the codec works in: before it packs up to so many KV pairs in a call,
  // of up to so many floats each, and when nothing is being packed. Throws Error if the device does
  // not have it.
  virtual void Reserve(const Codec& codec, size_t pairs, size_t floats) = 0;
  // In the stream, each by itself; none is empty. What a codec has reserved for belongs in the same
  // stream always, for the memory's sake.
  virtual void Pack(const Codec& codec, std::span<const Packing> packings, DeviceStream stream) = 0;
};

// For a device whose memory is the host's. A GPU's is in device/cuda/gradient_packer.h.
class HostGradientPacker : public GradientPacker {
 public:
  // `device` outlives this.
  explicit HostGradientPacker(HostDevice& device) : device_(device) {}
  void Reserve(const Codec& /*codec*/, size_t /*pairs*/, size_t /*floats*/) override {}
  void Pack(const Codec& codec, std::span<const Packing> packings, DeviceStream stream) override {
    for (const auto& [floats, residual, packed] : packings) {
      device_.Run(stream, [codec, floats = floats, residual = residual, packed = packed] {
        Encode(codec, floats, residual, packed);
      });
    }
  }

 private:
  HostDevice& device_;
};

}  // namespace poseidon
