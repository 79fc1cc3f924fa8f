#include "client/cuda/gradient_packer.h"

#include "client/cuda/codec.h"
#include "client/cuda/current_device.h"

namespace poseidon {
namespace {

class CudaGradientPacker : public GradientPacker {
 public:
  explicit CudaGradientPacker(int index) : index_(index) {}

  void Pack(const CodecSpec& codec, std::span<const float> floats, std::span<std::byte> packed,
            DeviceStream stream) override {
    const CurrentCudaDevice current(index_);
    cuda::Encode(codec, floats, {}, packed, scratch_, static_cast<CudaStream>(stream));
  }

 private:
  int index_;
  // Codecs of single floats need none.
  cuda::CodecScratch scratch_{CodecSpec{.codec = Codec::kFp16}, 0};
};

}  // namespace

std::unique_ptr<GradientPacker> MakeCudaGradientPacker(int index) {
  return std::make_unique<CudaGradientPacker>(index);
}

}  // namespace poseidon
