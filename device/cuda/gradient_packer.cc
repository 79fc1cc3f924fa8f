#include "device/cuda/gradient_packer.h"

#include <algorithm>
#include <optional>

#include "device/cuda/codec.h"
#include "device/cuda/current_device.h"

namespace poseidon {
namespace {

class CudaGradientPacker : public GradientPacker {
 public:
  explicit CudaGradientPacker(int index) : index_(index) {}

  void Reserve(const Codec& codec, size_t pairs, size_t floats) override {
    if (codec.type != CodecType::kTopK) return;  // the others need none
    if (pairs <= pairs_ && floats <= floats_) return;
    const CurrentCudaDevice current(index_);
    const size_t most_pairs = std::max(pairs_, pairs);
    const size_t most_floats = std::max(floats_, floats);
    scratch_.reset();  // its memory first
    scratch_.emplace(codec, most_pairs, most_floats);
    pairs_ = most_pairs;
    floats_ = most_floats;
  }

  void Pack(const Codec& codec, std::span<const Packing> packings, DeviceStream stream) override {
    const CurrentCudaDevice current(index_);
    cuda::Encode(codec, packings, *scratch_, static_cast<CudaStream>(stream));
  }

 private:
  int index_;
  std::optional<cuda::CodecScratch> scratch_{std::in_place, Codec{}, 0, 0};
  size_t pairs_ = 0;  // that the scratch is for
  size_t floats_ = 0;
};

}  // namespace

std::unique_ptr<GradientPacker> MakeCudaGradientPacker(int index) {
  return std::make_unique<CudaGradientPacker>(index);
}

}  // namespace poseidon
