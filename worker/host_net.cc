#include "worker/host_net.h"

#include <algorithm>
#include <utility>

#include "core/steady_now.h"

namespace poseidon {
namespace {

void Multiply(std::span<float> values, float factor) {
  for (float& value : values) value *= factor;
}

}  // namespace

HostNet::HostNet(Engine& engine, WorkerSession& session, int64_t most_passes,
                 std::unique_ptr<DeferredLayers> deferred)
    : engine_(engine),
      session_(session),
      most_passes_(most_passes),
      deferred_(std::move(deferred)) {
  BindParameters();
}

void HostNet::BindParameters() {
  for (int layer = 0; layer < engine_.model().layers_size(); ++layer) {
    engine_.BindParameters(layer, session_.values(layer));
  }
}

void HostNet::WaitFresh(int layer) {
  if (deferred_ != nullptr) return deferred_->WaitAndUpdate(layer);
  session_.WaitFresh(layer);
}

void HostNet::Forward(int step) {
  const Time begin = SteadyNow();
  engine_.Forward(step);
  Trace("forward", step, begin);
}

void HostNet::Backward(int step, const PassOfIteration& pass) {
  const auto layer = engine_.layer_of_step(step);
  GradientBuffers target;
  if (layer) target = TargetOf(*layer, pass.index);
  const Time begin = SteadyNow();
  engine_.Backward(step, target);
  if (layer) AddPass(*layer, pass);
  Trace("backward", step, begin);
}

GradientBuffers HostNet::TargetOf(int layer, int64_t pass) {
  const GradientBuffers buffers = session_.gradient(layer);
  if (buffers.dense.empty()) {
    // The factors of all passes, one below the other: their product is the passes' sum.
    const size_t u = buffers.u.size() / most_passes_;
    const size_t v = buffers.v.size() / most_passes_;
    return {{}, buffers.u.subspan(pass * u, u), buffers.v.subspan(pass * v, v)};
  }
  if (pass == 0) return {buffers.dense, {}, {}};
  pass_gradient_.resize(std::max(pass_gradient_.size(), buffers.dense.size()));
  return {std::span(pass_gradient_).first(buffers.dense.size()), {}, {}};
}

void HostNet::AddPass(int layer, const PassOfIteration& pass) {
  if (most_passes_ == 1) return;
  const GradientBuffers buffers = session_.gradient(layer);
  const float scale = 1.0F / static_cast<float>(pass.count);
  if (buffers.dense.empty()) {
    if (!pass.last()) return;
    const size_t used = buffers.u.size() / most_passes_ * pass.count;
    Multiply(buffers.u.first(used), scale);
    std::fill(buffers.u.begin() + static_cast<int64_t>(used), buffers.u.end(), 0.0F);
    return;
  }
  for (size_t i = 0; pass.index > 0 && i < buffers.dense.size(); ++i) {
    buffers.dense[i] += pass_gradient_[i];
  }
  if (pass.last()) Multiply(buffers.dense, scale);
}

void HostNet::Trace(const char* name, int step, Time begin) {
  if (session_.trace() == nullptr) return;
  session_.trace()->Add(
      {name, engine_.step_name(step), "compute", session_.iteration(), begin, SteadyNow()});
}

}  // namespace poseidon
