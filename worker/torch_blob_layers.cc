// Layers on blobs of any shape without parameters.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include "core/random.h"
#include "worker/torch_layer.h"

namespace poseidon {
namespace {

// A layer that is a function of its one bottom.
template <typename Function>
std::unique_ptr<TorchLayer> MakeElementwise(const TorchLayerInput& input, Function function) {
  return MakeAutogradLayer(
      input, [function](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {function(bottoms[0])};
      });
}

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

}  // namespace

std::unique_ptr<TorchLayer> MakeRelu(const TorchLayerInput& input) {
  const float slope = input.description.parameter.relu_param().negative_slope();
  if (slope == 0) return MakeElementwise(input, [](const at::Tensor& x) { return at::relu(x); });
  return MakeElementwise(input, [slope](const at::Tensor& x) { return at::leaky_relu(x, slope); });
}

std::unique_ptr<TorchLayer> MakeSigmoid(const TorchLayerInput& input) {
  return MakeElementwise(input, [](const at::Tensor& x) { return at::sigmoid(x); });
}

std::unique_ptr<TorchLayer> MakeTanh(const TorchLayerInput& input) {
  return MakeElementwise(input, [](const at::Tensor& x) { return at::tanh(x); });
}

// In training, zeroes values at random and scales the rest so that the expectation stays.
std::unique_ptr<TorchLayer> MakeDropout(const TorchLayerInput& input) {
  if (input.description.parameter.phase() != caffe::TRAIN) return MakeSplit(input);
  const double kept =
      1 - static_cast<double>(input.description.parameter.dropout_param().dropout_ratio());
  return MakeAutogradLayer(
      input,
      [kept, seed = input.seed](const Pass& pass, const Tensors& bottoms,
                                const Tensors&) -> Tensors {
        const auto iteration = static_cast<uint64_t>(pass.iteration);
        const at::Generator generator = at::detail::createCPUGenerator(DeriveSeed(seed, iteration));
        const at::Tensor mask = at::empty_like(bottoms[0]).bernoulli_(kept, generator);
        return {bottoms[0].mul(mask.mul_(1 / kept))};
      });
}

std::unique_ptr<TorchLayer> MakeSoftmax(const TorchLayerInput& input) {
  const int64_t axis = input.description.parameter.softmax_param().axis();
  return MakeElementwise(input, [axis](const at::Tensor& x) { return at::softmax(x, axis); });
}

std::unique_ptr<TorchLayer> MakeConcat(const TorchLayerInput& input) {
  const caffe::ConcatParameter& p = input.description.parameter.concat_param();
  const int64_t axis = p.has_concat_dim() ? p.concat_dim() : p.axis();
  return MakeAutogradLayer(input,
                           [axis](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
                             return {at::cat(bottoms, axis)};
                           });
}

std::unique_ptr<TorchLayer> MakeEltwise(const TorchLayerInput& input) {
  const auto operation = input.description.parameter.eltwise_param().operation();
  const std::vector<float> weights = EltwiseWeights(input);
  return MakeAutogradLayer(
      input, [operation, weights](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        switch (operation) {
          case caffe::EltwiseParameter::PROD:
            return {Product(bottoms)};
          case caffe::EltwiseParameter::MAX:
            return {Maximum(bottoms)};
          default:
            return {WeightedSum(bottoms, weights)};
        }
      });
}

std::unique_ptr<TorchLayer> MakeFlatten(const TorchLayerInput& input) {
  const Shape shape = input.description.tops[0].shape;
  return MakeElementwise(input, [shape](const at::Tensor& x) { return x.reshape(shape); });
}

// Each top is the bottom.
std::unique_ptr<TorchLayer> MakeSplit(const TorchLayerInput& input) {
  const size_t tops = input.description.tops.size();
  return MakeAutogradLayer(input,
                           [tops](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
                             Tensors copies;
                             for (size_t i = 0; i < tops; ++i) copies.push_back(bottoms[0].alias());
                             return copies;
                           });
}

}  // namespace poseidon
