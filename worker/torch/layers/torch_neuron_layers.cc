// Layers that change values one by one.
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/log.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <cmath>

#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/layers/torch_random.h"

namespace poseidon {
namespace {

// A layer that is a function of its one bottom, which autograd differentiates.
template <typename Function>
std::unique_ptr<TorchLayer> MakeNeuron(const TorchLayerInput& input, Function function) {
  return MakeAutogradLayer(
      input, [function](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {function(bottoms[0])};
      });
}

// The same with its gradient: a function of the top's gradient and the bottom's values.
template <typename Function, typename Gradient>
std::unique_ptr<TorchLayer> MakeNeuronOfBottom(const TorchLayerInput& input, Function function,
                                               Gradient gradient) {
  return MakeLayerWithGradient(
      input,
      [function](const Pass&, const Tensors& bottoms) -> Computed {
        return {{function(bottoms[0])}, {bottoms[0]}};
      },
      [gradient](const Tensors& top_gradients, const Tensors& kept) -> Tensors {
        return {gradient(top_gradients[0], kept[0])};
      });
}

// Or of the top's gradient and the top's values.
template <typename Function, typename Gradient>
std::unique_ptr<TorchLayer> MakeNeuronOfTop(const TorchLayerInput& input, Function function,
                                            Gradient gradient) {
  return MakeLayerWithGradient(
      input,
      [function](const Pass&, const Tensors& bottoms) -> Computed {
        const at::Tensor top = function(bottoms[0]);
        return {{top}, {top}};
      },
      [gradient](const Tensors& top_gradients, const Tensors& kept) -> Tensors {
        return {gradient(top_gradients[0], kept[0])};
      });
}

// scale * x + shift, leaving out what changes nothing.
at::Tensor Line(const at::Tensor& x, double scale, double shift) {
  const at::Tensor scaled = scale == 1 ? x : x.mul(scale);
  return shift == 0 ? scaled : scaled.add(shift);
}

// Of Exp and Log: base -1 is e.
double LogOfBase(double base) { return base == -1 ? 1 : std::log(base); }

}  // namespace

std::unique_ptr<TorchLayer> MakeAbsVal(const TorchLayerInput& input) {
  return MakeNeuronOfBottom(
      input, [](const at::Tensor& x) { return at::abs(x); },
      [](const at::Tensor& given, const at::Tensor& x) { return given.mul(x.sgn()); });
}

// log(1 + exp(x)). Where exp(-x) is below a double's precision, that is x.
std::unique_ptr<TorchLayer> MakeBnll(const TorchLayerInput& input) {
  constexpr double kThreshold = 50;
  return MakeNeuronOfBottom(
      input, [](const at::Tensor& x) { return at::softplus(x, 1, kThreshold); },
      [](const at::Tensor& given, const at::Tensor& x) {
        return at::softplus_backward(given, x, 1, kThreshold);
      });
}

std::unique_ptr<TorchLayer> MakeClip(const TorchLayerInput& input) {
  const caffe::ClipParameter& p = input.description.parameter.clip_param();
  const float min = p.min();
  const float max = p.max();
  // Whether clamp's own gradient is 1 at the ends, as here, depends on the version of libtorch.
  return MakeNeuronOfBottom(
      input, [min, max](const at::Tensor& x) { return at::clamp_min(at::clamp_max(x, max), min); },
      [min, max](const at::Tensor& given, const at::Tensor& x) {
        return given.mul(x.ge(min).logical_and_(x.le(max)));
      });
}

// In training, zeroes values at random and scales the rest so that the expectation stays.
std::unique_ptr<TorchLayer> MakeDropout(const TorchLayerInput& input) {
  if (input.description.parameter.phase() != caffe::TRAIN) return MakeSplit(input);
  const double kept =
      1 - static_cast<double>(input.description.parameter.dropout_param().dropout_ratio());
  return MakeLayerWithGradient(
      input,
      [kept, seed = input.seed](const Pass& pass, const Tensors& bottoms) -> Computed {
        const at::Generator generator = MakeGenerator(bottoms[0], seed, pass.iteration);
        const at::Tensor mask = at::empty_like(bottoms[0]).bernoulli_(kept, generator);
        mask.mul_(1 / kept);
        return {{bottoms[0].mul(mask)}, {mask}};
      },
      [](const Tensors& top_gradients, const Tensors& mask) -> Tensors {
        return {top_gradients[0].mul(mask[0])};
      });
}

// x above zero, else alpha * (exp(x) - 1).
std::unique_ptr<TorchLayer> MakeElu(const TorchLayerInput& input) {
  const float alpha = input.description.parameter.elu_param().alpha();
  return MakeNeuronOfBottom(
      input, [alpha](const at::Tensor& x) { return at::elu(x, alpha); },
      [alpha](const at::Tensor& given, const at::Tensor& x) {
        return at::elu_backward(given, alpha, /*scale=*/1, /*input_scale=*/1, /*is_result=*/false,
                                x);
      });
}

// base^(scale * x + shift).
std::unique_ptr<TorchLayer> MakeExp(const TorchLayerInput& input) {
  const caffe::ExpParameter& p = input.description.parameter.exp_param();
  const double log_base = LogOfBase(p.base());
  const double inner = log_base * p.scale();
  const double outer = std::exp(log_base * p.shift());
  return MakeNeuron(
      input, [=](const at::Tensor& x) { return Line(at::exp(Line(x, inner, 0)), outer, 0); });
}

// The logarithm of scale * x + shift to a base.
std::unique_ptr<TorchLayer> MakeLog(const TorchLayerInput& input) {
  const caffe::LogParameter& p = input.description.parameter.log_param();
  const double factor = 1 / LogOfBase(p.base());
  return MakeNeuron(input, [=, scale = p.scale(), shift = p.shift()](const at::Tensor& x) {
    return Line(at::log(Line(x, scale, shift)), factor, 0);
  });
}

// A slope below zero that is learned, of each channel or of all.
std::unique_ptr<TorchLayer> MakePRelu(const TorchLayerInput& input) {
  const size_t axes = input.description.bottoms[0].shape.size();
  const Shape& slope = input.description.parameters[0].shape;
  Shape spread(axes, 1);
  if (!slope.empty()) spread[1] = slope[0];
  return MakeAutogradLayer(
      input, [spread](const Pass&, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        // Where x is positive, the difference is exactly 0; where it is 0, the gradient is the
        // slope, as in Caffe.
        const at::Tensor above = at::relu(bottoms[0]);
        return {above.add(bottoms[0].sub(above).mul(parameters[0].view(spread)))};
      });
}

// (scale * x + shift)^power.
std::unique_ptr<TorchLayer> MakePower(const TorchLayerInput& input) {
  const caffe::PowerParameter& p = input.description.parameter.power_param();
  const double power = p.power();
  const double scale = p.scale();
  const double shift = p.shift();
  if (power == 0 || scale == 0) {  // the bottom does not matter, whatever its values
    const double value = power == 0 ? 1 : std::pow(shift, power);
    return MakeNeuron(input,
                      [value](const at::Tensor& x) { return at::full_like(x.detach(), value); });
  }
  return MakeNeuron(input, [=](const at::Tensor& x) {
    const at::Tensor line = Line(x, scale, shift);
    return power == 1 ? line.alias() : at::pow(line, power);
  });
}

std::unique_ptr<TorchLayer> MakeRelu(const TorchLayerInput& input) {
  const float slope = input.description.parameter.relu_param().negative_slope();
  if (slope == 0) {
    const bool in_place = input.may_overwrite_bottom;
    return MakeNeuronOfTop(
        input, [in_place](const at::Tensor& x) { return in_place ? x.relu_() : at::relu(x); },
        [](const at::Tensor& given, const at::Tensor& top) {
          return at::threshold_backward(given, top, 0);
        });
  }
  return MakeNeuronOfBottom(
      input, [slope](const at::Tensor& x) { return at::leaky_relu(x, slope); },
      [slope](const at::Tensor& given, const at::Tensor& x) {
        return at::leaky_relu_backward(given, x, slope, /*self_is_result=*/false);
      });
}

std::unique_ptr<TorchLayer> MakeSigmoid(const TorchLayerInput& input) {
  return MakeNeuronOfTop(
      input, [](const at::Tensor& x) { return at::sigmoid(x); },
      [](const at::Tensor& given, const at::Tensor& top) {
        return at::sigmoid_backward(given, top);
      });
}

// x * sigmoid(beta * x).
std::unique_ptr<TorchLayer> MakeSwish(const TorchLayerInput& input) {
  const float beta = input.description.parameter.swish_param().beta();
  return MakeNeuron(input,
                    [beta](const at::Tensor& x) { return x.mul(at::sigmoid(Line(x, beta, 0))); });
}

std::unique_ptr<TorchLayer> MakeTanh(const TorchLayerInput& input) {
  return MakeNeuronOfTop(
      input, [](const at::Tensor& x) { return at::tanh(x); },
      [](const at::Tensor& given, const at::Tensor& top) { return at::tanh_backward(given, top); });
}

// 1 above the threshold, else 0.
std::unique_ptr<TorchLayer> MakeThreshold(const TorchLayerInput& input) {
  const float threshold = input.description.parameter.threshold_param().threshold();
  return MakeLayerWithoutGradient(
      input, [threshold](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {bottoms[0].gt(threshold).to(bottoms[0].scalar_type())};
      });
}

}  // namespace poseidon
