// Layers that normalize: by a batch's statistics, a sample's, or a neighborhood's.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_batch_norm_impl_index.h>
#include <ATen/ops/_batch_norm_impl_index_backward.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/torch/layers/torch_layer.h"

namespace poseidon {
namespace {

// --- Batch normalization. ---

// Ioffe, Szegedy: Batch normalization, ICML 2015, as Caffe has it: without scale and shift (a Scale
// layer follows), and its three blobs are sums over the batches, each batch before counting
// `fraction` as much as the one after it: of the means, of the variances (without bias), and of 1,
// by which the others are to be divided. The forward pass in training adds to them.
//
// Here with the scale and the bias of each channel that may follow, which libtorch computes in the
// same passes over the data.
//
// On the CPU libtorch computes x * a + (b - mean * a), which cancels where the mean is much larger
// than the deviation: at 1,000 times the first update was off by 1e-3. So each channel's values are
// brought near zero first, by a number that need not be their mean to the last digit. On a GPU it
// computes (x - mean) * a + b.
class Normalization {
 public:
  explicit Normalization(const TorchLayerInput& input)
      : may_overwrite_(input.may_overwrite_bottom), shifts_(input.device.is_cpu()) {
    const caffe::LayerParameter& layer = input.description.parameter;
    const caffe::BatchNormParameter& p = layer.batch_norm_param();
    use_sums_ = p.has_use_global_stats() ? p.use_global_stats() : layer.phase() == caffe::TEST;
    fraction_ = p.moving_average_fraction();
    eps_ = p.eps();
    const Shape& bottom = input.description.bottoms[0].shape;
    values_a_channel_ = Count(bottom) / bottom[1];
    spread_.resize(bottom.size(), 1);
    spread_[1] = bottom[1];
  }

  // Scale and bias may be undefined.
  at::Tensor Forward(const at::Tensor& bottom, const Tensors& sums, const at::Tensor& scale,
                     const at::Tensor& bias) {
    const at::AutoGradMode mode(false);
    scale_ = scale;
    return use_sums_ ? ForwardBySums(bottom, sums, bias) : ForwardByBatch(bottom, sums, bias);
  }

  struct Gradients {
    at::Tensor bottom;
    at::Tensor scale;
    at::Tensor bias;
  };
  // Those that `wanted` asks for, in this order.
  Gradients Backward(const at::Tensor& top_gradient, std::array<bool, 3> wanted) {
    const at::AutoGradMode mode(false);
    // In one memory format, for the fast path.
    const at::Tensor given = top_gradient.contiguous(values_.suggest_memory_format());
    auto [bottom, scale, bias] = at::_batch_norm_impl_index_backward(
        found_.implementation, values_, given, scale_, mean_, variance_, found_.mean,
        found_.deviation, /*train=*/!use_sums_, eps_, wanted, found_.reserve);
    values_.reset();
    scale_.reset();
    mean_.reset();
    variance_.reset();
    found_ = {};
    return {std::move(bottom), std::move(scale), std::move(bias)};
  }

 private:
  // What libtorch's forward pass leaves to its backward pass.
  struct Found {
    at::Tensor mean;
    at::Tensor deviation;
    at::Tensor reserve;
    int64_t implementation = 0;
  };

  at::Tensor ForwardByBatch(const at::Tensor& bottom, const Tensors& sums, const at::Tensor& bias) {
    const at::Tensor shift = shifts_ ? MeanOfSome(bottom) : at::Tensor();
    values_ = Shifted(bottom, shift);
    if (!batch_mean_.defined()) MakeBatchStatistics(sums);
    mean_ = batch_mean_;
    variance_ = batch_variance_;
    at::Tensor top = Normalize(bias);
    if (values_a_channel_ == 1) variance_.zero_();  // of one value: 0 / 0
    const at::Tensor mean = shift.defined() ? mean_.add(shift.view({spread_[1]})) : mean_;
    // All at once: a net has many of these layers, and each operation costs the launching thread
    // microseconds.
    at::_foreach_mul_(sums, fraction_);
    at::_foreach_add_(sums, {mean, variance_, one_});
    return top;
  }

  // With momentum 1, libtorch's running statistics are this batch's, the variance unbiased; it adds
  // them to none of what was there before, which must be numbers.
  void MakeBatchStatistics(const Tensors& sums) {
    batch_mean_ = at::zeros({spread_[1]}, sums[0].options());
    batch_variance_ = at::zeros({spread_[1]}, sums[0].options());
    one_ = at::ones({1}, sums[0].options());
  }

  at::Tensor ForwardBySums(const at::Tensor& bottom, const Tensors& sums, const at::Tensor& bias) {
    // Before the first batch all are zero.
    const at::Tensor factor = sums[2].reciprocal().masked_fill_(sums[2].eq(0), 0);
    mean_ = sums[0].mul(factor);
    variance_ = sums[1].mul(factor);
    // What the bottom's type does not hold of the mean is left to libtorch.
    const at::Tensor shift = shifts_ ? mean_.to(bottom.scalar_type()) : at::Tensor();
    values_ = Shifted(bottom, shift.defined() ? shift.view(spread_) : shift);
    if (shift.defined()) mean_ = mean_.sub(shift);
    return Normalize(bias);
  }

  // Of each channel, over a sixteenth of the samples: whatever the others are, the mean of all is
  // at most four deviations of all from there.
  at::Tensor MeanOfSome(const at::Tensor& bottom) const {
    std::vector<int64_t> all_but_channels;
    for (int64_t axis = 0; axis < bottom.dim(); ++axis) {
      if (axis != 1) all_but_channels.push_back(axis);
    }
    const int64_t some = (bottom.size(0) + 15) / 16;
    return bottom.narrow(0, 0, some).mean(all_but_channels, /*keepdim=*/true);
  }

  at::Tensor Shifted(const at::Tensor& bottom, const at::Tensor& shift) const {
    const at::Tensor shifted = !shift.defined() ? bottom
                               : may_overwrite_ ? bottom.sub_(shift)
                                                : bottom.sub(shift);
    return shifted.contiguous(bottom.suggest_memory_format());
  }

  at::Tensor Normalize(const at::Tensor& bias) {
    at::Tensor top;
    std::tie(top, found_.mean, found_.deviation, found_.reserve, found_.implementation) =
        at::_batch_norm_impl_index(values_, scale_, bias, mean_, variance_,
                                   /*training=*/!use_sums_, /*momentum=*/1, eps_,
                                   /*cudnn_enabled=*/true);
    return top;
  }

  bool may_overwrite_;
  bool shifts_;
  bool use_sums_;
  double fraction_;
  double eps_;
  int64_t values_a_channel_;
  Shape spread_;  // of a number a channel, to meet the bottom

  // Written by each forward pass, so that it need not have new memory set to zero.
  at::Tensor batch_mean_;
  at::Tensor batch_variance_;
  at::Tensor one_;

  // Of the forward pass, until the backward pass.
  at::Tensor values_;  // the bottom's, shifted
  at::Tensor scale_;
  at::Tensor mean_;
  at::Tensor variance_;
  Found found_;
};

class BatchNorm : public TorchLayer {
 public:
  explicit BatchNorm(const TorchLayerInput& input) : normalization_(input) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    return {normalization_.Forward(bottoms[0], parameters, /*scale=*/{}, /*bias=*/{})};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    return {normalization_.Backward(top_gradients[0], {true, false, false}).bottom};
  }

 private:
  Normalization normalization_;
};

// What a BatchNorm layer and the Scale layer on its top have in common.
struct NormAndScale {
  explicit NormAndScale(const TorchLayerInput& norm) : normalization(norm) {}

  Normalization normalization;
  Tensors sums;  // of the BatchNorm layer, of the forward pass
};

// Of the two, the BatchNorm layer.
class NormOfScale : public TorchLayer {
 public:
  explicit NormOfScale(std::shared_ptr<NormAndScale> both) : both_(std::move(both)) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    both_->sums = parameters;
    return {bottoms[0]};
  }

  // The Scale layer has gone all the way.
  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    return {top_gradients[0]};
  }

 private:
  std::shared_ptr<NormAndScale> both_;
};

class ScaleOfNorm : public TorchLayer {
 public:
  ScaleOfNorm(std::shared_ptr<NormAndScale> both, const TorchLayerInput& scale)
      : both_(std::move(both)), bottom_needs_gradient_(scale.bottom_needs_gradient[0]) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    const at::Tensor bias = parameters.size() > 1 ? parameters[1] : at::Tensor();
    return {both_->normalization.Forward(bottoms[0], both_->sums, parameters[0], bias)};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const bool scale = gradients.blobs[0].defined();
    const bool bias = gradients.blobs.size() > 1 && gradients.blobs[1].defined();
    Normalization::Gradients found =
        both_->normalization.Backward(top_gradients[0], {bottom_needs_gradient_, scale, bias});
    if (scale) gradients.blobs[0].copy_(found.scale);
    if (bias) gradients.blobs[1].copy_(found.bias);
    return {std::move(found.bottom)};
  }

 private:
  std::shared_ptr<NormAndScale> both_;
  bool bottom_needs_gradient_;
};

// --- Mean and variance of a sample. ---

// top = (bottom - mean) / (deviation + eps), over each channel of each sample, or each sample.
// Caffe takes the deviation's gradient as if eps were added to no root, which is also finite where
// all values are equal; so it is done here.
class Mvn : public TorchLayer {
 public:
  explicit Mvn(const TorchLayerInput& input)
      : bottom_shape_(input.description.bottoms[0].shape),
        top_shape_(input.description.tops[0].shape) {
    const caffe::MVNParameter& p = input.description.parameter.mvn_param();
    rows_ = p.across_channels() ? top_shape_[0] : top_shape_[0] * top_shape_[1];
    divide_ = p.normalize_variance();
    eps_ = p.eps();
  }

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors&) override {
    const at::Tensor values = bottoms[0].reshape({rows_, -1});
    top_ = values.sub(values.mean(1, /*keepdim=*/true));
    if (divide_) {
      divisor_ = at::square(top_).mean(1, /*keepdim=*/true).sqrt_().add_(eps_);
      top_.div_(divisor_);
    }
    return {top_.view(top_shape_)};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::Tensor given = top_gradients[0].reshape({rows_, -1});
    at::Tensor gradient = given.sub(given.mean(1, /*keepdim=*/true));
    if (divide_) {
      gradient.sub_(top_.mul(given.mul(top_).mean(1, /*keepdim=*/true))).div_(divisor_);
    }
    top_.reset();
    divisor_.reset();
    return {gradient.view(bottom_shape_)};
  }

 private:
  Shape bottom_shape_;
  Shape top_shape_;
  int64_t rows_;
  bool divide_;
  double eps_;

  // Of the forward pass, until the backward pass.
  at::Tensor top_;
  at::Tensor divisor_;
};

// --- Local response normalization. ---

struct Lrn {
  int64_t size;
  double alpha;
  double beta;
  double k;
};

// To `sums` the sums over `size` neighboring channels, `size` odd, centered at each.
void SumNeighbors(const at::Tensor& values, int64_t size, const at::Tensor& sums) {
  sums.copy_(values);
  const int64_t channels = values.size(1);
  for (int64_t distance = 1; distance <= size / 2 && distance < channels; ++distance) {
    const int64_t both = channels - distance;
    sums.narrow(1, 0, both).add_(values.narrow(1, distance, both));
    sums.narrow(1, distance, both).add_(values.narrow(1, 0, both));
  }
}

// To `power`, which is not `values`, values^exponent. Caffe's usual one takes a fifth of the time
// by roots on a CPU, where a power is a logarithm and an exponential.
void Raise(const at::Tensor& values, double exponent, at::Tensor& power) {
  if (exponent != -0.75 || !values.is_cpu()) {
    at::pow_out(power, values, exponent);
    return;
  }
  at::rsqrt_out(power, values);
  power.mul_(power.sqrt());
}

// top = bottom * scale^-beta with scale = k + alpha / size * (sum of squares over neighboring
// channels). Autograd would go through each of the sums' steps; the gradient is again one such sum:
//   bottom' = top' * scale^-beta - 2 alpha beta / size * bottom * (sum of top' * top / scale)
class LrnAcrossChannels : public TorchLayer {
 public:
  explicit LrnAcrossChannels(const Lrn& lrn) : lrn_(lrn) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors&) override {
    const at::AutoGradMode mode(false);
    bottom_ = bottoms[0];
    scale_ = at::empty_like(bottom_);
    power_ = at::empty_like(bottom_);
    const at::Tensor top = at::empty_like(bottom_);
    for (const Samples& part : Parts(bottom_)) {
      ForwardOf(part.Of(bottom_), part.Of(scale_), part.Of(power_), part.Of(top));
    }
    return {top};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::AutoGradMode mode(false);
    // In one memory format, or each step would be several times slower.
    const at::Tensor given = top_gradients[0].contiguous(bottom_.suggest_memory_format());
    const at::Tensor gradient = at::empty_like(bottom_);
    for (const Samples& part : Parts(bottom_)) {
      BackwardOf(part.Of(given), part.Of(bottom_), part.Of(scale_), part.Of(power_),
                 part.Of(gradient));
    }
    bottom_.reset();
    scale_.reset();
    power_.reset();
    return {gradient};
  }

 private:
  struct Samples {
    int64_t first;
    int64_t count;

    at::Tensor Of(const at::Tensor& all) const { return all.narrow(0, first, count); }
  };

  // On a CPU so many at a time that what one step writes the next finds in the cache of a core.
  static std::vector<Samples> Parts(const at::Tensor& blob) {
    constexpr int64_t kFloats = 32 << 10;  // of each of the tensors: 128 KiB
    const int64_t all = blob.size(0);
    const int64_t sample = std::max<int64_t>(1, blob.numel() / std::max<int64_t>(1, all));
    const int64_t most = blob.is_cpu() ? std::max<int64_t>(1, kFloats / sample) : all;
    std::vector<Samples> parts;
    for (int64_t first = 0; first < all; first += most) {
      parts.push_back({first, std::min(most, all - first)});
    }
    return parts;
  }

  void ForwardOf(const at::Tensor& bottom, const at::Tensor& scale, at::Tensor power,
                 at::Tensor top) const {
    SumNeighbors(at::square(bottom), lrn_.size, scale);
    scale.mul_(lrn_.alpha / static_cast<double>(lrn_.size)).add_(lrn_.k);
    Raise(scale, -lrn_.beta, power);
    at::mul_out(top, bottom, power);
  }

  void BackwardOf(const at::Tensor& given, const at::Tensor& bottom, const at::Tensor& scale,
                  const at::Tensor& power, const at::Tensor& gradient) const {
    const at::Tensor direct = given.mul(power);
    SumNeighbors(direct.mul(bottom).div_(scale), lrn_.size, gradient);
    const double factor = -2 * lrn_.alpha * lrn_.beta / static_cast<double>(lrn_.size);
    gradient.mul_(bottom).mul_(factor).add_(direct);
  }

  Lrn lrn_;

  // Of the forward pass, until the backward pass.
  at::Tensor bottom_;
  at::Tensor scale_;
  at::Tensor power_;
};

// top = bottom * (1 + alpha * (mean of squares over a size x size window))^-beta, the mean over the
// whole window also where it is partly outside of the image.
TensorFunction LrnWithinChannel(const Lrn& lrn) {
  const int64_t pad = (lrn.size - 1) / 2;
  return [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    const at::Tensor mean =
        at::avg_pool2d(at::square(bottoms[0]), {lrn.size, lrn.size}, /*stride=*/{1, 1}, {pad, pad},
                       /*ceil_mode=*/false, /*count_include_pad=*/true);
    return {bottoms[0].mul(at::pow(mean.mul(lrn.alpha).add(1), -lrn.beta))};
  };
}

}  // namespace

std::unique_ptr<TorchLayer> MakeBatchNorm(const TorchLayerInput& input) {
  return std::make_unique<BatchNorm>(input);
}

bool CanScaleBatchNorm(const LayerDescription& norm, const LayerDescription& scale) {
  return norm.type() == "BatchNorm" && scale.type() == "Scale" && IsScaleOfChannels(scale);
}

ScaledBatchNorm MakeScaledBatchNorm(const TorchLayerInput& norm, const TorchLayerInput& scale) {
  const auto both = std::make_shared<NormAndScale>(norm);
  return {std::make_unique<NormOfScale>(both), std::make_unique<ScaleOfNorm>(both, scale)};
}

std::unique_ptr<TorchLayer> MakeMvn(const TorchLayerInput& input) {
  return std::make_unique<Mvn>(input);
}

std::unique_ptr<TorchLayer> MakeLrn(const TorchLayerInput& input) {
  const caffe::LRNParameter& p = input.description.parameter.lrn_param();
  const Lrn lrn{p.local_size(), p.alpha(), p.beta(), p.k()};
  if (p.norm_region() == caffe::LRNParameter::WITHIN_CHANNEL) {
    return MakeAutogradLayer(input, LrnWithinChannel(lrn));
  }
  return std::make_unique<LrnAcrossChannels>(lrn);
}

}  // namespace poseidon
