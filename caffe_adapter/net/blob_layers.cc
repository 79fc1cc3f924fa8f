// Shapes of layers without parameters that compute on blobs of any shape.
#include <glog/logging.h>

#include <cmath>

#include "caffe_adapter/net/layer_types.h"

namespace poseidon {
namespace {

// The base of Exp and Log: -1 is e.
void CheckBase(const LayerInput& input, float base, const std::string& field) {
  if (base != -1 && !(base > 0 && std::isfinite(base))) {
    input.Fail(field,
               "base is " + std::to_string(base) + "; expected a positive number, or -1 for e");
  }
}

}  // namespace

LayerShapes InferSameShape(const LayerInput& input) { return {{input.bottoms[0]}, {}}; }

LayerShapes InferDropout(const LayerInput& input) {
  const float ratio = input.layer.dropout_param().dropout_ratio();
  if (!(ratio >= 0 && ratio < 1)) {
    input.Fail("dropout_param.dropout_ratio",
               "dropout_ratio is " + std::to_string(ratio) + "; expected 0 to less than 1");
  }
  return InferSameShape(input);
}

LayerShapes InferExp(const LayerInput& input) {
  CheckBase(input, input.layer.exp_param().base(), "exp_param.base");
  return InferSameShape(input);
}

LayerShapes InferLog(const LayerInput& input) {
  CheckBase(input, input.layer.log_param().base(), "log_param.base");
  if (input.layer.log_param().base() == 1) {
    input.Fail("log_param.base", "there is no logarithm to base 1");
  }
  return InferSameShape(input);
}

LayerShapes InferClip(const LayerInput& input) {
  const caffe::ClipParameter& p = input.layer.clip_param();
  if (!p.has_min() || !p.has_max()) input.Fail("clip_param", "min and max are missing");
  return InferSameShape(input);
}

LayerShapes InferEltwise(const LayerInput& input) {
  const caffe::EltwiseParameter& p = input.layer.eltwise_param();
  for (size_t i = 1; i < input.bottoms.size(); ++i) {
    if (input.bottoms[i] != input.bottoms[0]) {
      input.Fail("bottom." + std::to_string(i),
                 "bottom \"" + input.layer.bottom(static_cast<int>(i)) + "\" is " +
                     ToString(input.bottoms[i]) + "; expected " + ToString(input.bottoms[0]) +
                     " as bottom \"" + input.layer.bottom(0) + "\"");
    }
  }
  if (p.coeff_size() != 0 && p.operation() == caffe::EltwiseParameter::PROD) {
    input.Fail("eltwise_param.coeff", "coeff does not go with operation PROD");
  }
  if (p.coeff_size() != 0 && p.coeff_size() != input.layer.bottom_size()) {
    input.Fail("eltwise_param.coeff", "coeff has " + std::to_string(p.coeff_size()) +
                                          " values; expected one for each of " +
                                          std::to_string(input.layer.bottom_size()) + " bottoms");
  }
  return InferSameShape(input);
}

// Of the Caffe that Squeeze-and-Excitation networks came with: a x + y, where a has a value for
// each channel of x.
LayerShapes InferAxpy(const LayerInput& input) {
  const Shape& x = input.bottoms[1];
  if (x.size() < 2) input.Fail("bottom.1", input.Bottom(1) + ", has no axis 1, the channels");
  LOG_FIRST_N(WARNING, 1) << "layer \"" << input.layer.name()
                          << "\" has type Axpy, of Squeeze-and-Excitation networks' fork of Caffe; "
                             "BVLC's needs Scale and Eltwise for it";
  const Shape& scale = input.bottoms[0];
  const bool fits =
      scale.size() >= 2 && scale[0] == x[0] && scale[1] == x[1] && Count(scale) == x[0] * x[1];
  if (!fits) {
    input.Fail("bottom.0", input.Bottom(0) + ", should have a value for each channel of " +
                               input.Bottom(1) + ": " + ToString({x[0], x[1]}));
  }
  if (input.bottoms[2] != x) {
    input.Fail("bottom.2", input.Bottom(2) + ", has another shape than " + input.Bottom(1));
  }
  return {{x}, {}};
}

LayerShapes InferSoftmax(const LayerInput& input) {
  input.Axis(input.layer.softmax_param().axis(), "softmax_param.axis");
  return InferSameShape(input);
}

// All axes from one on become a number.
LayerShapes InferReduction(const LayerInput& input) {
  const int axis = input.Axis(input.layer.reduction_param().axis(), "reduction_param.axis");
  return {{Shape(input.bottoms[0].begin(), input.bottoms[0].begin() + axis)}, {}};
}

// Along an axis, or else over each sample: num x 1 x top_k x 1, or num x 2 x top_k with the values
// after the indices.
LayerShapes InferArgMax(const LayerInput& input) {
  const caffe::ArgMaxParameter& p = input.layer.argmax_param();
  const Shape& bottom = input.bottoms[0];
  const int axes = static_cast<int>(bottom.size());
  if (bottom.empty()) input.Fail("", input.Bottom(0) + ", has no samples");
  const int axis = p.has_axis() ? input.Axis(p.axis(), "argmax_param.axis") : 0;
  const int64_t candidates = p.has_axis() ? bottom[axis] : Count(bottom, 1, axes);
  if (p.top_k() == 0 || p.top_k() > candidates) {
    input.Fail("argmax_param.top_k", "top_k is " + std::to_string(p.top_k()) + "; expected 1 to " +
                                         std::to_string(candidates) +
                                         ", the values to choose from");
  }
  if (p.has_axis()) {
    Shape top = bottom;
    top[axis] = p.top_k();
    return {{top}, {}};
  }
  Shape top(axes < 3 ? 3 : axes, 1);
  top[0] = bottom[0];
  top[1] = p.out_max_val() ? 2 : 1;
  top[2] = p.top_k();
  return {{top}, {}};
}

}  // namespace poseidon
