// For tests of layers on libtorch: random blobs, layers made from text, and a check of any layer's
// gradients against finite differences in double precision.
#pragma once

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "caffe_adapter/net/layer_types.h"
#include "core/error.h"
#include "worker/torch/layers/torch_labels.h"
#include "worker/torch/layers/torch_layer.h"

namespace poseidon {

inline std::mt19937& Generator() {
  static std::mt19937 generator(20170706);
  return generator;
}

inline int64_t Draw(int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(Generator());
}

// Values in (-2, 2), no two close to each other and none close to 0, in random order: the steps of
// finite differences go over no kink of a maximum.
inline at::Tensor RandomTensor(const Shape& shape) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  const int64_t count = tensor.numel();
  const double offset = std::uniform_real_distribution<double>(0.25, 0.75)(Generator());
  double* values = tensor.data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    values[i] = 4 * (static_cast<double>(i) + offset) / static_cast<double>(count) - 2;
  }
  std::shuffle(values, values + count, Generator());
  return tensor;
}

inline at::Tensor RandomLabels(const Shape& shape, int64_t classes) {
  at::Tensor labels = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    labels.data_ptr<double>()[i] = static_cast<double>(Draw(0, classes - 1));
  }
  return labels;
}

// The description of the layer written in `text` (without bottoms) on bottoms of these shapes.
inline LayerDescription Describe(const std::string& text, const std::vector<Shape>& bottoms,
                                 caffe::Phase phase = caffe::TRAIN) {
  caffe::NetParameter net;
  caffe::LayerParameter layer;
  CHECK(google::protobuf::TextFormat::ParseFromString("name: \"it\" " + text, &layer));
  if (layer.top().empty() && FindLayerType(layer.type())->tops.max > 0) layer.add_top("top");
  for (size_t i = 0; i < bottoms.size(); ++i) {
    const std::string name = "bottom" + std::to_string(i);
    caffe::LayerParameter& input = *net.add_layer();
    input.set_name(name);
    input.set_type("Input");
    input.add_top(name);
    *input.mutable_input_param()->add_shape()->mutable_dim() = {bottoms[i].begin(),
                                                                bottoms[i].end()};
    layer.add_bottom(name);
  }
  *net.add_layer() = layer;
  return DescribeNet(net, phase).layers.back();
}

// Notices operators of libtorch that read values on the host, which would wait for a device: the
// test fails. For a scope, on this thread.
class NoHostReads {
 public:
  NoHostReads()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&Start).scopes({at::RecordScope::FUNCTION}))) {}
  ~NoHostReads() { at::removeCallback(handle_); }
  NoHostReads(const NoHostReads&) = delete;
  NoHostReads& operator=(const NoHostReads&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> Start(const at::RecordFunction& function) {
    for (const char* name : {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal",
                             "aten::masked_select", "aten::_unique2", "aten::is_nonzero"}) {
      if (std::string(function.name()) == name) ADD_FAILURE() << name << " waits for a device";
    }
    return nullptr;
  }

  at::CallbackHandle handle_;
};

// A layer with what to run it on, in double precision.
struct Subject {
  Subject(const std::string& text, Tensors given_bottoms, std::vector<bool> gradients = {},
          caffe::Phase phase = caffe::TRAIN)
      : bottoms(std::move(given_bottoms)), needs_gradient(std::move(gradients)) {
    std::vector<Shape> shapes;
    for (const at::Tensor& bottom : bottoms) shapes.push_back(bottom.sizes().vec());
    description = Describe(text, shapes, phase);
    needs_gradient.resize(bottoms.size(), true);
    for (const ParameterDescription& parameter : description.parameters) {
      parameters.push_back(RandomTensor(parameter.shape));
      parameter_needs_gradient.push_back(parameter.lr_mult != 0);
    }
  }

  std::unique_ptr<TorchLayer> Make() const {
    return MakeTorchLayer({.description = description,
                           .bottom_needs_gradient = needs_gradient,
                           .parameter_needs_gradient = parameter_needs_gradient,
                           .seed = 17,
                           .passes = passes});
  }

  Tensors Forward(at::ScalarType type = at::kDouble) const { return ForwardOf(*Make(), type); }

  // The gradients of sum(tops * top_gradients) at bottoms, then parameters.
  Tensors Backward(const Tensors& top_gradients, at::ScalarType type) const {
    const auto layer = Make();
    ForwardOf(*layer, type);
    ParameterGradients gradients;
    for (size_t i = 0; i < parameters.size(); ++i) {
      // What was there before must not matter.
      gradients.blobs.push_back(
          parameter_needs_gradient[i] ? at::full_like(parameters[i], 77).to(type) : at::Tensor());
    }
    const Tensors given = To(top_gradients, type);
    const std::unique_ptr<NoHostReads> none = Watch();
    Tensors all = layer->Backward(given, gradients);
    all.insert(all.end(), gradients.blobs.begin(), gradients.blobs.end());
    return all;
  }

  // Not libtorch's own convolutions: the dilated one for CPUs reads its factors, those for GPUs do
  // not.
  std::unique_ptr<NoHostReads> Watch() const {
    const std::string& type = description.type();
    if (type == "Convolution" || type == "Deconvolution") return nullptr;
    if (type == "Filter") return nullptr;  // whose values say how large the tops are
    return std::make_unique<NoHostReads>();
  }

  // As on a device: labels are checked afterwards.
  Tensors ForwardOf(TorchLayer& layer, at::ScalarType type) const {
    const Tensors given = To(bottoms, type);
    const Tensors values = To(parameters, type);
    LabelChecks checks;
    Tensors tops;
    {
      const std::unique_ptr<NoHostReads> none = Watch();
      tops = layer.Forward({.iteration = 0, .data = nullptr, .later = &checks}, given, values);
    }
    std::vector<double> valid;
    for (const at::Tensor& all : checks.all_valid()) valid.push_back(all.item<bool>() ? 1 : 0);
    checks.Check(valid, {});
    return tops;
  }

  // Float images also with channels innermost, as the engine has them.
  static Tensors To(const Tensors& tensors, at::ScalarType type) {
    Tensors converted;
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined()) {
        converted.emplace_back();
        continue;
      }
      const bool image = type == at::kFloat && tensor.dim() == 4;
      converted.push_back(tensor.to(type).contiguous(image ? at::MemoryFormat::ChannelsLast
                                                           : at::MemoryFormat::Contiguous));
    }
    return converted;
  }

  LayerDescription description;
  Tensors bottoms;
  std::vector<bool> needs_gradient;
  Tensors parameters;
  std::vector<bool> parameter_needs_gradient;
  int64_t passes = 1;
};

inline void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double error = (actual.to(at::kDouble) - expected).abs().max().item<double>();
  const double scale = 1 + expected.abs().max().item<double>();
  EXPECT_LE(error, tolerance * scale) << what;
}

// How gradients are checked.
struct GradientCheck {
  double tolerance = 1e-6;  // of the double gradient, relative to the largest
  size_t tops = 1000;       // those after have no gradient
  bool in_float = true;     // false for random layers, which draw other numbers there
};

// The numeric gradient of `objective` at a tensor that it reads, by central differences.
template <typename Objective>
at::Tensor NumericGradient(const at::Tensor& variable, Objective objective) {
  constexpr double kStep = 1e-5;
  at::Tensor gradient = at::empty_like(variable);
  for (int64_t i = 0; i < variable.numel(); ++i) {
    double& value = variable.data_ptr<double>()[i];
    const double before = std::exchange(value, value + kStep);
    const double above = objective();
    value = before - kStep;
    gradient.data_ptr<double>()[i] = (above - objective()) / (2 * kStep);
    value = before;
  }
  return gradient;
}

// Analytic gradients against central differences of sum(tops * weights), both in double; and those
// in float against those in double.
inline void CheckGradients(const Subject& subject, const GradientCheck& check = {}) {
  SCOPED_TRACE(subject.description.parameter.ShortDebugString());
  Tensors weights;
  for (const at::Tensor& top : subject.Forward()) {
    weights.push_back(weights.size() < check.tops ? RandomTensor(top.sizes().vec()) : at::Tensor());
  }
  const auto objective = [&] {
    double sum = 0;
    const Tensors tops = subject.Forward();
    for (size_t i = 0; i < tops.size(); ++i) {
      if (weights[i].defined()) sum += (tops[i] * weights[i]).sum().item<double>();
    }
    return sum;
  };
  const Tensors gradients = subject.Backward(weights, at::kDouble);
  const Tensors in_float = subject.Backward(weights, at::kFloat);
  Tensors variables = subject.bottoms;
  variables.insert(variables.end(), subject.parameters.begin(), subject.parameters.end());
  std::vector<bool> needs = subject.needs_gradient;
  needs.insert(needs.end(), subject.parameter_needs_gradient.begin(),
               subject.parameter_needs_gradient.end());
  ASSERT_EQ(gradients.size(), variables.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    const std::string which = "gradient " + std::to_string(i);
    if (!needs[i]) {
      EXPECT_FALSE(gradients[i].defined()) << which << " is not needed";
      continue;
    }
    const at::Tensor numeric = NumericGradient(variables[i], objective);
    // Undefined is zero.
    const at::Tensor found = gradients[i].defined() ? gradients[i] : at::zeros_like(numeric);
    ExpectClose(found, numeric, check.tolerance, which);
    if (!gradients[i].defined() || !check.in_float) continue;
    ExpectClose(in_float[i], found, 1e-5, "float " + which);
  }
}

// The first top, in double and in float.
inline void CheckForward(const Subject& subject, const at::Tensor& expected) {
  SCOPED_TRACE(subject.description.parameter.ShortDebugString());
  EXPECT_EQ(expected.sizes().vec(), subject.description.tops[0].shape) << "the reference is wrong";
  ExpectClose(subject.Forward()[0], expected, 1e-12, "double");
  ExpectClose(subject.Forward(at::kFloat)[0], expected, 1e-5, "float");
}

inline std::string Field(const std::string& name, int64_t value) {
  return " " + name + ": " + std::to_string(value);
}

}  // namespace poseidon
