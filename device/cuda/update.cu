#include <glog/logging.h>

#include "device/cuda/launch_each.h"
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

template <typename Element, typename Scalars>
void LaunchUpdate(const Scalars& scalars, const Vectors& vectors, CudaStream stream) {
  LaunchEach(UpdateEach<Element, Scalars>{scalars, vectors.gradient, vectors.parameters,
                                          vectors.optimizer_state},
             vectors.count, stream, "UpdateEach");
}

template <typename Rule, typename Decay>
void Launch(const UpdateScalars& scalars, const Vectors& vectors, CudaStream stream) {
  if (vectors.gradient == nullptr) {
    return LaunchEach(
        UpdateDeferredEach<Rule, Decay>{scalars, vectors.parameters, vectors.optimizer_state},
        vectors.count, stream, "UpdateDeferredEach");
  }
  LaunchUpdate<CaffeElement<Rule, Decay>>(scalars, vectors, stream);
}

template <typename Rule>
void LaunchRule(UpdateRule::Regularization regularization, const UpdateScalars& scalars,
                const Vectors& vectors, CudaStream stream) {
  if (scalars.decay == 0) return Launch<Rule, NoDecay>(scalars, vectors, stream);
  if (regularization == UpdateRule::Regularization::kL1) {
    return Launch<Rule, L1Decay>(scalars, vectors, stream);
  }
  Launch<Rule, L2Decay>(scalars, vectors, stream);
}

void ApplyTorch(const UpdateStep& step, const Vectors& vectors, CudaStream stream) {
  CHECK(step.group != nullptr);
  const TorchScalars scalars =
      TorchScalarsOf(step.rule.type, *step.group, step.iteration, step.gradient_scale);
  if (step.rule.type == kTorchSgd) return LaunchUpdate<TorchSgdElement>(scalars, vectors, stream);
  LaunchUpdate<TorchAdamWElement>(scalars, vectors, stream);
}

struct Type {
  const char* name;
  decltype(&LaunchRule<SgdElement>) launch;
};
constexpr Type kTypes[] = {
    {"SGD", LaunchRule<SgdElement>},           {"Nesterov", LaunchRule<NesterovElement>},
    {"AdaGrad", LaunchRule<AdaGradElement>},   {"RMSProp", LaunchRule<RmsPropElement>},
    {"AdaDelta", LaunchRule<AdaDeltaElement>}, {"Adam", LaunchRule<AdamElement>}};

void Apply(const UpdateRule& rule, const UpdateScalars& scalars, const Vectors& vectors,
           CudaStream stream) {
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
