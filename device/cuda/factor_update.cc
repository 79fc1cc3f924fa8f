#include "device/cuda/factor_update.h"

#include <optional>

#include "device/cuda/current_device.h"
#include "device/cuda/rebuild.h"

namespace poseidon {
namespace {

class CudaFactorUpdate : public FactorUpdate {
 public:
  explicit CudaFactorUpdate(int index) : index_(index) {
    const CurrentCudaDevice current(index);
    rebuilder_.emplace();
  }

  void Apply(const ProductUpdate& layer, int64_t iteration, const Memory& memory,
             DeviceStream stream) override {
    const CurrentCudaDevice current(index_);
    rebuilder_->RebuildAndUpdate(layer, iteration, memory, static_cast<CudaStream>(stream));
  }

 private:
  int index_;
  std::optional<cuda::GradientRebuilder> rebuilder_;
};

}  // namespace

std::unique_ptr<FactorUpdate> MakeCudaFactorUpdate(int index) {
  return std::make_unique<CudaFactorUpdate>(index);
}

}  // namespace poseidon
