#include "device/cuda/gradient_packer.h"

#include <optional>

#include "device/cuda/codec.h"
#include "device/cuda/current_device.h"

namespace poseidon {
namespace {

class CudaGradientPacker : public GradientPacker {
 public:
  explicit CudaGradientPacker(int index) : index_(index) {}

  void Reserve(const Codec& codec, size_t floats) override {
    if (codec.type != CodecType::kTopK || floats <= reserved_) return;  // the others need none
    const CurrentCudaDevice current(index_);
    scratch_.reset();  // its memory first
    scratch_.emplace(codec, static_cast<int64_t>(floats));
    reserved_ = floats;
  }

  void Pack(const Codec& codec, std::span<const float> floats, std::span<float> residual,
            std::span<std::byte> packed, DeviceStream stream) override {
    const CurrentCudaDevice current(index_);
    cuda::Encode(codec, floats, residual, packed, *scratch_, static_cast<CudaStream>(stream));
  }

 private:
  int index_;
  std::optional<cuda::CodecScratch> scratch_{std::in_place, Codec{}, 0};
  size_t reserved_ = 0;
};

}  // namespace

std::unique_ptr<GradientPacker> MakeCudaGradientPacker(int index) {
  return std::make_unique<CudaGradientPacker>(index);
}

}  // namespace poseidon
