// GradientPacker: packs gradients where they are, on a device, so that fewer bytes cross the bus.
// The bytes are those of core/codec.h's Encode, so the wire, and what comes of them, stay the same.
//
// Only kFp16 and kBf16, which pack each float alone. The others need all floats of a KV pair at
// once, and keep a residual, which the host has.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "client/device.h"
#include "client/host_device.h"
#include "core/codec.h"

namespace poseidon {

// Whether devices can pack so.
inline bool PacksEachFloatAlone(const CodecSpec& codec) {
  return codec.codec == Codec::kFp16 || codec.codec == Codec::kBf16;
}

class GradientPacker {
 public:
  virtual ~GradientPacker() = default;
  // In the stream; both are the device's memory, `packed` begins at a multiple of 4 bytes.
  virtual void Pack(const CodecSpec& codec, std::span<const float> floats,
                    std::span<std::byte> packed, DeviceStream stream) = 0;
};

// For a device whose memory is the host's. A GPU's is in client/cuda/gradient_packer.h.
class HostGradientPacker : public GradientPacker {
 public:
  // `device` outlives this.
  explicit HostGradientPacker(HostDevice& device) : device_(device) {}
  void Pack(const CodecSpec& codec, std::span<const float> floats, std::span<std::byte> packed,
            DeviceStream stream) override {
    device_.Run(stream, [=] { Encode(codec, floats, {}, packed); });
  }

 private:
  HostDevice& device_;
};

}  // namespace poseidon
