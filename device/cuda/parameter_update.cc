#include "device/cuda/parameter_update.h"

#include "device/cuda/current_device.h"
#include "device/cuda/update.h"

namespace poseidon {
namespace {

class CudaParameterUpdate : public ParameterUpdate {
 public:
  explicit CudaParameterUpdate(int index) : index_(index) {}

  void Apply(const UpdateStep& step, std::span<const float> gradient_sum,
             std::span<float> parameters, std::span<float> optimizer_state,
             DeviceStream stream) override {
    const CurrentCudaDevice current(index_);
    cuda::Update(step, gradient_sum, parameters, optimizer_state, static_cast<CudaStream>(stream));
  }

 private:
  int index_;
};

}  // namespace

std::unique_ptr<ParameterUpdate> MakeCudaParameterUpdate(int index) {
  return std::make_unique<CudaParameterUpdate>(index);
}

}  // namespace poseidon
