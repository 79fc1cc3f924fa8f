// Layers without parameters that compute on blobs of any shape.
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/square.h>
#include <ATen/ops/where.h>

#include "worker/torch/layers/torch_layer.h"

namespace poseidon {
namespace {

at::Tensor Product(const Tensors& factors) {
  at::Tensor product = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) product = product.mul(factors[i]);
  return product;
}

at::Tensor WeightedSum(const Tensors& addends, const std::vector<float>& weights) {
  at::Tensor sum = weights[0] == 1 ? addends[0] : addends[0].mul(weights[0]);
  for (size_t i = 1; i < addends.size(); ++i) sum = at::add(sum, addends[i], weights[i]);
  return sum;
}

// The gradient of a maximum goes to one bottom. Of equal ones Caffe takes the second of the first
// two, else the first; at::maximum would share it out.
at::Tensor Maximum(const Tensors& bottoms) {
  at::Tensor maximum = at::where(bottoms[0].gt(bottoms[1]), bottoms[0], bottoms[1]);
  for (size_t i = 2; i < bottoms.size(); ++i) {
    maximum = at::where(bottoms[i].gt(maximum), bottoms[i], maximum);
  }
  return maximum;
}

std::vector<float> EltwiseWeights(const TorchLayerInput& input) {
  const caffe::EltwiseParameter& p = input.description.parameter.eltwise_param();
  if (p.coeff().empty()) return std::vector<float>(input.description.bottoms.size(), 1);
  return {p.coeff().begin(), p.coeff().end()};
}

std::unique_ptr<TorchLayer> MakeWeightedSum(const TorchLayerInput& input) {
  const std::vector<float> weights = EltwiseWeights(input);
  return MakeLayerWithGradient(
      input,
      [weights](const Pass&, const Tensors& bottoms) -> Computed {
        return {{WeightedSum(bottoms, weights)}, {}};
      },
      [weights](const Tensors& top_gradients, const Tensors&) -> Tensors {
        Tensors gradients;
        for (const float weight : weights) {
          gradients.push_back(weight == 1 ? top_gradients[0] : top_gradients[0].mul(weight));
        }
        return gradients;
      });
}

// The largest values along an axis and their indices, largest first. Of equal values Caffe takes
// those with the higher index first: the stable sort goes from the back.
struct Largest {
  at::Tensor values;
  at::Tensor indices;
};

Largest FindLargest(const at::Tensor& x, int64_t axis, int64_t number) {
  const auto [values, from_back] =
      at::sort(at::flip(x, axis), /*stable=*/true, axis, /*descending=*/true);
  const at::Tensor indices = from_back.narrow(axis, 0, number).neg().add_(x.size(axis) - 1);
  return {values.narrow(axis, 0, number), indices.to(x.scalar_type())};
}

}  // namespace

std::unique_ptr<TorchLayer> MakeArgMax(const TorchLayerInput& input) {
  const caffe::ArgMaxParameter& p = input.description.parameter.argmax_param();
  const int64_t number = p.top_k();
  const bool with_values = p.out_max_val();
  if (p.has_axis()) {
    const int axis = input.Axis(p.axis());
    return MakeLayerWithoutGradient(
        input, [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
          const Largest largest = FindLargest(bottoms[0], axis, number);
          return {with_values ? largest.values : largest.indices};
        });
  }
  const Shape top = input.description.tops[0].shape;
  return MakeLayerWithoutGradient(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        const Largest largest = FindLargest(bottoms[0].reshape({top[0], -1}), 1, number);
        if (!with_values) return {largest.indices.reshape(top)};
        return {at::cat({largest.indices, largest.values}, 1).reshape(top)};
      });
}

// The bottoms are a, x, y: a x + y, with a value of a for each channel of x.
std::unique_ptr<TorchLayer> MakeAxpy(const TorchLayerInput& input) {
  const Shape& x = input.description.bottoms[1].shape;
  Shape spread(x.size(), 1);
  spread[0] = x[0];
  spread[1] = x[1];
  return MakeLayerWithGradient(
      input,
      [spread](const Pass&, const Tensors& bottoms) -> Computed {
        return {{at::addcmul(bottoms[2], bottoms[0].reshape(spread), bottoms[1])},
                {bottoms[0], bottoms[1]}};
      },
      [spread](const Tensors& top_gradients, const Tensors& kept) -> Tensors {
        const at::Tensor& given = top_gradients[0];
        return {given.mul(kept[1]).sum_to_size(spread).reshape(kept[0].sizes()),
                given.mul(kept[0].reshape(spread)), given};
      });
}

std::unique_ptr<TorchLayer> MakeEltwise(const TorchLayerInput& input) {
  const auto operation = input.description.parameter.eltwise_param().operation();
  if (operation == caffe::EltwiseParameter::SUM) return MakeWeightedSum(input);
  const bool maximum = operation == caffe::EltwiseParameter::MAX;
  return MakeAutogradLayer(
      input, [maximum](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {maximum ? Maximum(bottoms) : Product(bottoms)};
      });
}

// All axes from one on become a number.
std::unique_ptr<TorchLayer> MakeReduction(const TorchLayerInput& input) {
  const caffe::ReductionParameter& p = input.description.parameter.reduction_param();
  const Shape top = input.description.tops[0].shape;
  const int64_t rows = Count(top);
  const auto operation = p.operation();
  double coefficient = p.coeff();
  if (operation == caffe::ReductionParameter::MEAN) {
    const int64_t values = Count(input.description.bottoms[0].shape) / rows;
    coefficient /= static_cast<double>(values);
  }
  return MakeAutogradLayer(input,
                           [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
                             at::Tensor values = bottoms[0].reshape({rows, -1});
                             if (operation == caffe::ReductionParameter::ASUM)
                               values = at::abs(values);
                             if (operation == caffe::ReductionParameter::SUMSQ)
                               values = at::square(values);
                             return {values.sum(1).mul(coefficient).reshape(top)};
                           });
}

std::unique_ptr<TorchLayer> MakeSoftmax(const TorchLayerInput& input) {
  const int64_t axis = input.Axis(input.description.parameter.softmax_param().axis());
  return MakeAutogradLayer(input,
                           [axis](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
                             return {at::softmax(bottoms[0], axis)};
                           });
}

}  // namespace poseidon
