#include <cuda_runtime.h>

#include <stdexcept>

#include "tests/gpu/update_kernel.h"

namespace poseidon {
namespace {

void Check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// A copy of floats on the device.
class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& floats) : bytes_(floats.size() * sizeof(float)) {
    Check(cudaMalloc(&data_, bytes_));
    Check(cudaMemcpy(data_, floats.data(), bytes_, cudaMemcpyHostToDevice));
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  ~DeviceFloats() { cudaFree(data_); }

  void CopyTo(std::vector<float>& floats) const {
    Check(cudaMemcpy(floats.data(), data_, bytes_, cudaMemcpyDeviceToHost));
  }
  float* data() { return data_; }

 private:
  size_t bytes_;
  float* data_ = nullptr;
};

struct Vectors {
  size_t count;
  const float* gradient;
  float* parameters;
  float* history;
};

template <typename Rule, typename Decay>
__global__ void UpdateKernel(UpdateScalars scalars, Vectors vectors) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vectors.count) return;
  UpdateElement<Rule, Decay>(scalars, vectors.gradient[i], &vectors.parameters[i],
                             &vectors.history[i * Rule::kState]);
}

template <typename Rule>
void Launch(DecayKind decay, const UpdateScalars& scalars, const Vectors& vectors) {
  constexpr unsigned kThreads = 256;
  const auto blocks = static_cast<unsigned>((vectors.count + kThreads - 1) / kThreads);
  if (decay == DecayKind::kNone) {
    UpdateKernel<Rule, NoDecay><<<blocks, kThreads>>>(scalars, vectors);
  } else if (decay == DecayKind::kL1) {
    UpdateKernel<Rule, L1Decay><<<blocks, kThreads>>>(scalars, vectors);
  } else {
    UpdateKernel<Rule, L2Decay><<<blocks, kThreads>>>(scalars, vectors);
  }
  Check(cudaGetLastError());
}

struct Type {
  const char* name;
  void (*launch)(DecayKind, const UpdateScalars&, const Vectors&);
};
const Type kTypes[] = {{"SGD", Launch<SgdElement>},           {"Nesterov", Launch<NesterovElement>},
                       {"AdaGrad", Launch<AdaGradElement>},   {"RMSProp", Launch<RmsPropElement>},
                       {"AdaDelta", Launch<AdaDeltaElement>}, {"Adam", Launch<AdamElement>}};

}  // namespace

Devices CudaDevices() {
  Devices devices{0, ""};
  const cudaError_t error = cudaGetDeviceCount(&devices.count);
  if (error != cudaSuccess) devices = {0, cudaGetErrorString(error)};
  return devices;
}

void UpdateOnDevice(const std::string& type, DecayKind decay, const UpdateScalars& scalars,
                    const std::vector<float>& gradient_sum, std::vector<float>& parameters,
                    std::vector<float>& history) {
  DeviceFloats device_gradient(gradient_sum), device_parameters(parameters);
  DeviceFloats device_history(history);
  bool known = false;
  for (const Type& candidate : kTypes) {
    if (candidate.name != type) continue;
    known = true;
    candidate.launch(decay, scalars,
                     {parameters.size(), device_gradient.data(), device_parameters.data(),
                      device_history.data()});
  }
  if (!known) throw std::runtime_error("no kernel for type " + type);
  device_parameters.CopyTo(parameters);
  device_history.CopyTo(history);
}

}  // namespace poseidon
