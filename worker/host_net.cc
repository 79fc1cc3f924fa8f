#include "worker/host_net.h"

#include <algorithm>
#include <utility>

#include "core/arithmetic/sum.h"
#include "core/steady_now.h"
#include "worker/pass_gradient.h"

namespace poseidon {
namespace {

struct HostArithmetic {
  void AddInto(std::span<float> sum, std::span<const float> addend) const {
    poseidon::AddInto(sum, std::as_bytes(addend));
  }
  void Scale(std::span<float> floats, float factor) const {
    for (float& value : floats) value *= factor;
  }
  void Clear(std::span<float> floats) const { std::fill(floats.begin(), floats.end(), 0.0F); }
};

}  // namespace

HostNet::HostNet(Engine& engine, WorkerSession& session, int64_t most_passes,
                 std::unique_ptr<DeferredLayers> deferred)
    : engine_(engine),
      session_(session),
      most_passes_(most_passes),
      deferred_(std::move(deferred)),
      statistics_(engine, session.recovers(), nullptr) {
  BindParameters();
}

void HostNet::BindParameters() {
  for (int layer = 0; layer < engine_.model().layers_size(); ++layer) {
    engine_.BindParameters(layer, session_.values(layer));
  }
}

void HostNet::WaitFresh(int layer) {
  session_.WaitFresh(layer);
  if (deferred_ == nullptr || deferred_->Update(layer)) return;
  for (int other = 0; other < engine_.model().layers_size(); ++other) session_.WaitFresh(other);
  deferred_->Update(layer);
}

void HostNet::PlanChanged() {
  BindParameters();
  if (deferred_ != nullptr) deferred_->PlanChanged();
}

void HostNet::Forward(int step) {
  const Time begin = SteadyNow();
  engine_.Forward(step);
  Trace("forward", step, begin);
}

void HostNet::Backward(int step, const PassOfIteration& pass) {
  const auto layer = engine_.layer_of_step(step);
  GradientBuffers iteration;
  GradientBuffers target;
  if (layer) {
    iteration = session_.gradient(*layer);
    if (pass.index > 0 && pass_gradient_.size() < iteration.dense.size()) {
      pass_gradient_.resize(iteration.dense.size());
    }
    target = BuffersOfPass(iteration, pass_gradient_, most_passes_, pass.index);
  }
  const Time begin = SteadyNow();
  engine_.Backward(step, target);
  if (layer && most_passes_ > 1) {
    AddPass(iteration, pass_gradient_, most_passes_, pass, HostArithmetic());
  }
  Trace("backward", step, begin);
}

void HostNet::Trace(const char* name, int step, Time begin) {
  if (session_.trace() == nullptr) return;
  session_.trace()->Add(
      {name, engine_.step_name(step), "compute", session_.iteration(), begin, SteadyNow()});
}

}  // namespace poseidon
