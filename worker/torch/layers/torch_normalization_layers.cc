// Layers that normalise: by a batch's statistics, a sample's, or a neighbourhood's.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>

#include <tuple>
#include <vector>

#include "worker/torch/layers/torch_layer.h"

namespace poseidon {
namespace {

// --- Batch normalisation. ---

// Ioffe, Szegedy: Batch normalization, ICML 2015, as Caffe has it: without scale and shift (a Scale
// layer follows), and its three blobs are sums over the batches, each batch before counting
// `fraction` as much as the one after it: of the means, of the variances (without bias), and of 1,
// by which the others are to be divided. The forward pass in training adds to them.
//
// libtorch computes x * a + (b - mean * a), which cancels where the mean is much larger than the
// deviation: at 1,000 times the first update was off by 1e-3. So each channel's values are brought
// near zero first, by a number that need not be their mean to the last digit.
class BatchNorm : public TorchLayer {
 public:
  explicit BatchNorm(const TorchLayerInput& input) {
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

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    const at::AutoGradMode mode(false);
    return {use_sums_ ? ForwardBySums(bottoms[0], parameters)
                      : ForwardByBatch(bottoms[0], parameters)};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::AutoGradMode mode(false);
    at::Tensor gradient;
    if (use_sums_) {
      gradient = top_gradients[0].mul(inverse_deviation_.view(spread_));
    } else {
      // In one memory format, for the fast path.
      const at::Tensor top_gradient = top_gradients[0].contiguous(bottom_.suggest_memory_format());
      gradient = std::get<0>(at::native_batch_norm_backward(
          top_gradient, bottom_, /*weight=*/{}, /*running_mean=*/{}, /*running_var=*/{}, mean_,
          inverse_deviation_, /*train=*/true, eps_, {true, false, false}));
    }
    bottom_.reset();
    mean_.reset();
    inverse_deviation_.reset();
    return {gradient};
  }

 private:
  at::Tensor ForwardByBatch(const at::Tensor& bottom, const Tensors& sums) {
    std::vector<int64_t> all_but_channels;
    for (int64_t axis = 0; axis < bottom.dim(); ++axis) {
      if (axis != 1) all_but_channels.push_back(axis);
    }
    const at::Tensor shift = bottom.mean(all_but_channels, /*keepdim=*/true);
    bottom_ = bottom.sub(shift).contiguous(bottom.suggest_memory_format());
    // With momentum 1, libtorch's running statistics are this batch's, the variance unbiased.
    const at::Tensor mean = at::zeros({spread_[1]}, sums[0].options());
    const at::Tensor variance = at::zeros({spread_[1]}, sums[0].options());
    at::Tensor top;
    std::tie(top, mean_, inverse_deviation_) =
        at::native_batch_norm(bottom_, /*weight=*/{}, /*bias=*/{}, mean, variance,
                              /*training=*/true, /*momentum=*/1, eps_);
    if (values_a_channel_ == 1) variance.zero_();  // of one value: 0 / 0
    mean.add_(shift.view({spread_[1]}));
    sums[0].mul_(fraction_).add_(mean);
    sums[1].mul_(fraction_).add_(variance);
    sums[2].mul_(fraction_).add_(1);
    return top;
  }

  at::Tensor ForwardBySums(const at::Tensor& bottom, const Tensors& sums) {
    // Before the first batch all are zero.
    const at::Tensor factor = sums[2].reciprocal().masked_fill_(sums[2].eq(0), 0);
    const at::Tensor mean = sums[0].mul(factor);
    const at::Tensor variance = sums[1].mul(factor);
    inverse_deviation_ = at::rsqrt(variance.add(eps_));
    // What the bottom's type does not hold of the mean is left to libtorch.
    const at::Tensor shift = mean.to(bottom.scalar_type());
    return std::get<0>(at::native_batch_norm(bottom.sub(shift.view(spread_)), /*weight=*/{},
                                             /*bias=*/{}, mean.sub(shift), variance,
                                             /*training=*/false, /*momentum=*/0, eps_));
  }

  bool use_sums_;
  double fraction_;
  double eps_;
  int64_t values_a_channel_;
  Shape spread_;  // of a number a channel, to meet the bottom

  // Of the forward pass, until the backward pass.
  at::Tensor bottom_;
  at::Tensor mean_;
  at::Tensor inverse_deviation_;
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

// --- Local response normalisation. ---

struct Lrn {
  int64_t size;
  double alpha;
  double beta;
  double k;
};

// The sum over `size` neighbouring channels, `size` odd, centred at each.
at::Tensor SumNeighbours(const at::Tensor& values, int64_t size) {
  at::Tensor sum = values.clone();
  const int64_t channels = values.size(1);
  for (int64_t distance = 1; distance <= size / 2 && distance < channels; ++distance) {
    const int64_t both = channels - distance;
    sum.narrow(1, 0, both).add_(values.narrow(1, distance, both));
    sum.narrow(1, distance, both).add_(values.narrow(1, 0, both));
  }
  return sum;
}

// top = bottom * scale^-beta with scale = k + alpha / size * (sum of squares over neighbouring
// channels). Autograd would go through each of the sums' steps; the gradient is again one such sum:
//   bottom' = top' * scale^-beta - 2 alpha beta / size * bottom * (sum of top' * top / scale)
class LrnAcrossChannels : public TorchLayer {
 public:
  explicit LrnAcrossChannels(const Lrn& lrn) : lrn_(lrn) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors&) override {
    bottom_ = bottoms[0];
    scale_ = SumNeighbours(at::square(bottom_), lrn_.size)
                 .mul_(lrn_.alpha / static_cast<double>(lrn_.size))
                 .add_(lrn_.k);
    power_ = at::pow(scale_, -lrn_.beta);
    return {bottom_.mul(power_)};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::Tensor direct = top_gradients[0].mul(power_);
    const at::Tensor ratio = direct.mul(bottom_).div_(scale_);
    const double factor = -2 * lrn_.alpha * lrn_.beta / static_cast<double>(lrn_.size);
    at::Tensor gradient = SumNeighbours(ratio, lrn_.size).mul_(bottom_).mul_(factor).add_(direct);
    bottom_.reset();
    scale_.reset();
    power_.reset();
    return {gradient};
  }

 private:
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
