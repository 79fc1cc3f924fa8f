#include <glog/logging.h>

#include "core/arithmetic/torch_element.h"
#include "core/arithmetic/update_element.h"
#include "device/cuda/check.h"
#include "device/cuda/update.h"

namespace poseidon::cuda {
namespace {

// Gradients have a vector of their own or, deferred, stand in the optimizer_state behind each one's
// state.
struct Vectors {
  size_t count;
  const float* gradient;  // null: deferred
  float* parameters;
  float* optimizer_state;
};

template <typename Rule, typename Decay>
__global__ void UpdateKernel(UpdateScalars scalars, Vectors vectors) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vectors.count) return;
  const bool deferred = vectors.gradient == nullptr;
  float* const state = &vectors.optimizer_state[i * (Rule::kState + (deferred ? 1 : 0))];
  const float gradient = deferred ? state[Rule::kState] : vectors.gradient[i];
  UpdateElement<Rule, Decay>(scalars, gradient, &vectors.parameters[i], state);
}

template <typename Rule>
void Launch(UpdateRule::Regularization regularization, const UpdateScalars& scalars,
            const Vectors& vectors, CudaStream stream) {
  const unsigned blocks = BlocksFor(vectors.count);
  if (scalars.decay == 0) {
    UpdateKernel<Rule, NoDecay><<<blocks, kBlockThreads, 0, stream>>>(scalars, vectors);
  } else if (regularization == UpdateRule::Regularization::kL1) {
    UpdateKernel<Rule, L1Decay><<<blocks, kBlockThreads, 0, stream>>>(scalars, vectors);
  } else {
    UpdateKernel<Rule, L2Decay><<<blocks, kBlockThreads, 0, stream>>>(scalars, vectors);
  }
  CheckLaunch("UpdateKernel");
}

template <typename Element>
__global__ void TorchKernel(TorchScalars scalars, Vectors vectors) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vectors.count) return;
  Element::Update(scalars, vectors.gradient[i], &vectors.parameters[i],
                  &vectors.optimizer_state[i * Element::kState]);
}

void ApplyTorch(const UpdateStep& step, const Vectors& vectors, CudaStream stream) {
  CHECK(step.group != nullptr);
  const TorchScalars scalars =
      TorchScalarsOf(step.rule.type, *step.group, step.iteration, step.gradient_scale);
  const unsigned blocks = BlocksFor(vectors.count);
  if (step.rule.type == kTorchSgd) {
    TorchKernel<TorchSgdElement><<<blocks, kBlockThreads, 0, stream>>>(scalars, vectors);
  } else {
    TorchKernel<TorchAdamWElement><<<blocks, kBlockThreads, 0, stream>>>(scalars, vectors);
  }
  CheckLaunch("TorchKernel");
}

struct Type {
  const char* name;
  decltype(&Launch<SgdElement>) launch;
};
constexpr Type kTypes[] = {
    {"SGD", Launch<SgdElement>},           {"Nesterov", Launch<NesterovElement>},
    {"AdaGrad", Launch<AdaGradElement>},   {"RMSProp", Launch<RmsPropElement>},
    {"AdaDelta", Launch<AdaDeltaElement>}, {"Adam", Launch<AdamElement>}};

void Apply(const UpdateRule& rule, const UpdateScalars& scalars, const Vectors& vectors,
           CudaStream stream) {
  if (vectors.count == 0) return;  // a launch of no blocks is an error
  for (const Type& type : kTypes) {
    if (rule.type == type.name) {
      return type.launch(rule.regularization, scalars, vectors, stream);
    }
  }
  LOG(FATAL) << "no kernel for type " << rule.type;
}

// Puts the mean gradient behind each parameter's state.
__global__ void DeferKernel(Vectors vectors, int floats_each, float scale) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vectors.count) return;
  vectors.optimizer_state[i * floats_each + floats_each - 1] = vectors.gradient[i] * scale;
}

}  // namespace

void Update(const UpdateStep& step, std::span<const float> gradient_sum,
            std::span<float> parameters, std::span<float> optimizer_state, CudaStream stream) {
  const int state = OptimizerStatePerParameter(step.rule);
  CHECK_EQ(gradient_sum.size(), parameters.size());
  CHECK_EQ(optimizer_state.size(), parameters.size() * state);
  const Vectors vectors{parameters.size(), gradient_sum.data(), parameters.data(),
                        optimizer_state.data()};
  if (vectors.count == 0) return;  // a launch of no blocks is an error
  if (IsTorchType(step.rule.type)) return ApplyTorch(step, vectors, stream);
  if (!step.rule.deferred) return Apply(step.rule, ScalarsOf(step), vectors, stream);
  DeferKernel<<<BlocksFor(vectors.count), kBlockThreads, 0, stream>>>(vectors, state,
                                                                      step.gradient_scale);
  CheckLaunch("DeferKernel");
}

void UpdateDeferred(const UpdateStep& step, std::span<float> parameters,
                    std::span<float> optimizer_state, CudaStream stream) {
  CHECK(step.rule.deferred);
  CHECK_EQ(optimizer_state.size(), parameters.size() * OptimizerStatePerParameter(step.rule));
  Apply(step.rule, ScalarsOf(step),
        {parameters.size(), nullptr, parameters.data(), optimizer_state.data()}, stream);
}

}  // namespace poseidon::cuda
