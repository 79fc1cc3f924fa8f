#include "caffe_adapter/patch/staged_gradients.h"

#include <glog/logging.h>

#include <utility>

namespace poseidon {

StagedGradients::StagedGradients(SolverOnDevice& solver, WorkerSession& session,
                                 const ModelSpec& model, int passes)
    : solver_(solver), session_(session), passes_(passes) {
  DeviceReplica replica{&solver.device(), {}};
  replica.factor_update = solver.factor_update();
  for (int layer = 0; layer < model.layers_size(); ++layer) {
    const InnerProductSpec& product = model.layers(layer).inner_product();
    const Rows& rows = rows_.emplace_back(Rows{.u = Allocate(product.rows() * product.outputs()),
                                               .v = Allocate(product.rows() * product.inputs())});
    const std::vector<std::span<float>> gradient = solver.GradientOnDevice(layer);
    replica.layers.push_back({.values = gradient, .gradient = gradient, .u = rows.u, .v = rows.v});
  }
  staging_ = std::make_unique<DeviceStaging>(session.exchange(),
                                             std::vector<DeviceReplica>{std::move(replica)});
}

std::span<float> StagedGradients::Allocate(int64_t floats) {
  if (floats == 0) return {};
  const auto size = static_cast<size_t>(floats);
  memory_.push_back(solver_.device().Allocate(size * sizeof(float)));
  return {reinterpret_cast<float*>(memory_.back().get()), size};
}

void StagedGradients::WaitFresh(int layer) {
  const DeviceStream stream = solver_.stream();
  staging_->WaitFresh(layer, {&stream, 1});
}

void StagedGradients::AfterBackward(int layer, int pass) {
  const bool factors = session_.gradient(layer).dense.empty();
  if (factors) CopyFactors(layer, pass);
  if (pass + 1 < passes_) return;
  solver_.GradientOnDevice(layer);  // which is there now, and will be written there
  const DeviceStream stream = solver_.stream();
  staging_->GradientReady(layer, {&stream, 1});
}

void StagedGradients::CopyFactors(int layer, int pass) {
  const auto copy = [&](std::span<const float> from, std::span<float> rows) {
    CHECK_EQ(from.size() * static_cast<size_t>(passes_), rows.size());
    solver_.device().Copy(solver_.stream(), &rows[static_cast<size_t>(pass) * from.size()],
                          from.data(), from.size_bytes());
  };
  const SolverOnDevice::Factors factors = solver_.FactorsOnDevice(layer);
  copy(factors.u, rows_[layer].u);
  copy(factors.v, rows_[layer].v);
}

}  // namespace poseidon
