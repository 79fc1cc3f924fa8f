#include <glog/logging.h>

#include "device/cuda/launch_each.h"
#include "device/cuda/sum.h"

namespace poseidon::cuda {

void AddInto(std::span<float> accumulator, std::span<const float> addend, CudaStream stream) {
  CHECK_EQ(accumulator.size(), addend.size());
  LaunchEach(AddEach{accumulator.data(), addend.data()}, addend.size(), stream, "AddEach");
}

void Scale(std::span<float> floats, float factor, CudaStream stream) {
  LaunchEach(ScaleEach{floats.data(), factor}, floats.size(), stream, "ScaleEach");
}

}  // namespace poseidon::cuda
