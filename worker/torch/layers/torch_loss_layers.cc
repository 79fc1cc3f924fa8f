// Losses that know no classes.
#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/square.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>

#include "caffe_adapter/net/shape.h"
#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/layers/torch_loss_normalizer.h"

namespace poseidon {
namespace {

// Hadsell, Chopra, LeCun: Dimensionality reduction by learning an invariant mapping, CVPR 2006:
// half the mean of distance^2 over pairs (bottom 2 is not 0) and of max(margin - distance, 0)^2
// over the others; in the legacy version of max(margin - distance^2, 0). Caffe's gradient, kept
// here, divides by a distance that is never 0.
class ContrastiveLoss : public TorchLayer {
 public:
  explicit ContrastiveLoss(const TorchLayerInput& input)
      : shapes_{input.description.bottoms[0].shape, input.description.bottoms[1].shape} {
    input.CheckNoGradient(2, "which samples are pairs");
    const caffe::ContrastiveLossParameter& p = input.description.parameter.contrastive_loss_param();
    margin_ = p.margin();
    legacy_ = p.legacy_version();
  }

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors&) override {
    const int64_t samples = shapes_[0][0];
    const at::Tensor difference =
        bottoms[0].reshape({samples, -1}).sub(bottoms[1].reshape({samples, -1}));
    const at::Tensor pair = bottoms[2].reshape({samples, 1}).to(at::kInt).ne(0);
    const at::Tensor square = at::square(difference).sum(1, /*keepdim=*/true);
    const at::Tensor distance = square.sqrt();
    const at::Tensor lack = (legacy_ ? square : distance).neg().add_(margin_).clamp_min_(0);
    const at::Tensor losses = at::where(pair, square, legacy_ ? lack : at::square(lack));
    constexpr double kLeastDistance = 1e-4;
    const at::Tensor apart = legacy_ ? lack.gt(0).to(lack.scalar_type()).neg_()
                                     : lack.div(distance.add(kLeastDistance)).neg_();
    slope_ = difference.mul(at::where(pair, 1, apart)).div_(static_cast<double>(samples));
    return {losses.sum().div(2 * static_cast<double>(samples))};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::Tensor gradient = slope_.mul(top_gradients[0]);
    slope_.reset();
    return {gradient.view(shapes_[0]), gradient.neg().view(shapes_[1]), {}};
  }

 private:
  std::array<Shape, 2> shapes_;
  double margin_;
  bool legacy_;
  at::Tensor slope_;  // at bottom 0, until the backward pass
};

}  // namespace

std::unique_ptr<TorchLayer> MakeContrastiveLoss(const TorchLayerInput& input) {
  return std::make_unique<ContrastiveLoss>(input);
}

// Half the squared distance, the mean over the samples; 0 if a Filter layer has let none pass.
std::unique_ptr<TorchLayer> MakeEuclideanLoss(const TorchLayerInput& input) {
  return MakeAutogradLayer(
      input, [](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        const at::Tensor other = bottoms[1].reshape(bottoms[0].sizes());
        const auto samples = static_cast<double>(std::max<int64_t>(1, bottoms[0].size(0)));
        return {at::square(bottoms[0].sub(other)).sum().div(2 * samples)};
      });
}

// Of each value, by its own: a sum over the values, a mean (as Caffe's default has it) over the
// samples.
std::unique_ptr<TorchLayer> MakeSigmoidCrossEntropyLoss(const TorchLayerInput& input) {
  input.CheckNoGradient(1, "targets");
  const caffe::LossParameter& p = input.description.parameter.loss_param();
  const auto mode = NormalizationMode(p, caffe::LossParameter::BATCH_SIZE);
  const bool ignores = p.has_ignore_label();
  const int64_t ignore = p.ignore_label();
  const Shape& shape = input.description.bottoms[0].shape;
  const int64_t inner = Count(shape) / shape[0];
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        const at::Tensor targets = bottoms[1].reshape(bottoms[0].sizes());
        const at::Tensor counted =
            ignores ? targets.to(at::kInt).ne(ignore) : at::ones_like(targets, at::kBool);
        const at::Tensor weights = ignores ? counted.to(targets.scalar_type()) : at::Tensor();
        const at::Tensor sum = at::binary_cross_entropy_with_logits(
            bottoms[0], targets, weights, /*pos_weight=*/{}, at::Reduction::Sum);
        return {
            sum.div(LossNormalizer(mode, bottoms[0].size(0), inner, counted, targets.options()))};
      });
}

}  // namespace poseidon
