#include "worker/torch/torch_loss_scaler.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"

namespace poseidon {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A scale above is of no more use: float16's numbers reach down to 2^-24, so that all gradients
// above 2^-48 have one then, and below are none that float32's sums would notice.
constexpr double kMostUseful = 1 << 24;

// The places of the state's parts.
enum Part : int64_t { kScale, kInverse, kPasses, kOverflows };

LossScaler::State ToState(const at::Tensor& host) {
  const float* values = host.data_ptr<float>();
  LossScaler::State state{values[kScale], {}};
  for (int64_t i = kOverflows; i < host.numel(); ++i) {
    state.overflows.push_back(static_cast<int64_t>(values[i]));
  }
  return state;
}

}  // namespace

LossScaler::LossScaler(std::vector<std::string> layers, const LossScaling& options,
                       at::Device device)
    : layers_(std::move(layers)),
      least_(std::min(1.0, static_cast<double>(options.initial_scale))),
      most_(std::max(kMostUseful, static_cast<double>(options.initial_scale))),
      growth_interval_(static_cast<double>(options.growth_interval)),
      logged_{options.initial_scale, std::vector<int64_t>(layers_.size())} {
  // Half of the largest power of two has an inverse that is no subnormal number.
  if (!(options.initial_scale > 0 && options.initial_scale <= 0x1p126F)) {
    throw ConfigError("the initial loss scale must be above 0 and at most 2^126");
  }
  if (options.growth_interval < 1) {
    throw ConfigError("the loss scale's growth interval must be at least 1");
  }
  const auto count = static_cast<int64_t>(layers_.size());
  const at::TensorOptions floats = at::TensorOptions(at::kFloat).device(device);
  state_ = at::zeros({kOverflows + count}, floats);
  scale_ = state_.select(0, kScale).fill_(options.initial_scale);
  inverse_ = state_.select(0, kInverse).copy_(scale_.reciprocal());
  passes_ = state_.select(0, kPasses);
  overflows_ = state_.narrow(0, kOverflows, count);
  norms_ = at::zeros({count}, floats);
  finite_ = at::zeros({count}, floats.dtype(at::kBool));
  instead_ = at::zeros({}, floats);
  SetInstead();
  on_host_ =
      at::empty(state_.sizes(), at::TensorOptions(at::kFloat).pinned_memory(device.is_cuda()));
}

void LossScaler::Unscale(int layer, const at::Tensor& gradient) {
  at::Tensor norm = norms_.select(0, layer);
  at::Tensor finite = finite_.select(0, layer);
  at::Tensor changed = gradient;
  at::linalg_vector_norm_out(norm, gradient, kInfinity);
  at::lt_out(finite, norm, kInfinity);  // NaN is not
  at::where_out(changed, finite, gradient, instead_);
  changed.mul_(inverse_);
}

void LossScaler::EndPass() {
  if (!std::exchange(used_, false)) return;
  Adapt();
  SetInstead();
  norms_.zero_();
  Log();
}

void LossScaler::Adapt() {
  const at::Tensor overflowed = norms_.lt(kInfinity).logical_not_();
  const at::Tensor any = overflowed.any();
  overflows_.add_(overflowed);
  passes_.add_(1);
  const at::Tensor grows = passes_.ge(growth_interval_);
  const at::Tensor grown = scale_.mul(grows.to(at::kFloat).add_(1));
  scale_.copy_(at::where(any, scale_.mul(0.5), grown).clamp_(least_, most_));
  inverse_.copy_(scale_.reciprocal());
  passes_.mul_(grows.logical_or(any).logical_not_());
}

void LossScaler::SetInstead() { instead_.zero_().masked_fill_(scale_.le(least_), std::nan("")); }

LossScaler::State LossScaler::Read() const { return ToState(state_.to(at::kCPU)); }

// The next copy is asked for when the one before has arrived, so nothing waits.
void LossScaler::Log() {
  const at::Device device = state_.device();
  if (device.is_cpu()) return LogChange(ToState(state_));
  if (sent_) {
    if (!sent_->query()) return;
    LogChange(ToState(on_host_));
  } else {
    sent_.emplace(device.type());
  }
  on_host_.copy_(state_, /*non_blocking=*/true);
  sent_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void LossScaler::LogChange(const State& state) {
  std::string names;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (state.overflows[i] == logged_.overflows[i]) continue;
    names += (names.empty() ? "" : ", ") + layers_[i];
  }
  if (names.empty()) {
    LOG_IF(INFO, state.scale != logged_.scale) << "the loss scale is " << state.scale;
  } else if (logged_.scale <= least_) {
    LOG(WARNING) << "gradients are not finite, and no loss scale is the reason: " << names;
  } else {
    LOG(INFO) << "gradients were not finite at loss scale " << logged_.scale << ": " << names
              << "; zeros were handed out, the scale is " << state.scale;
  }
  logged_ = state;
}

}  // namespace poseidon
