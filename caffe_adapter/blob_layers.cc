// Shapes of layers without parameters that take blobs of any shape.
#include "caffe_adapter/layer_types.h"

namespace poseidon {
namespace {

// Predictions with a label for each of their positions: all axes but that of the classes.
void CheckLabels(const LayerInput& input, int class_axis) {
  const Shape& scores = input.bottoms[0];
  const int axes = static_cast<int>(scores.size());
  const int64_t expected = Count(scores, 0, class_axis) * Count(scores, class_axis + 1, axes);
  if (Count(input.bottoms[1]) != expected) {
    input.Fail("", "bottom \"" + input.layer.bottom(1) + "\" has " +
                       std::to_string(Count(input.bottoms[1])) + " labels; expected " +
                       std::to_string(expected) + " for bottom \"" + input.layer.bottom(0) +
                       "\", " + ToString(scores));
  }
}

}  // namespace

LayerShapes InferSameShape(const LayerInput& input) { return {{input.bottoms[0]}, {}}; }

LayerShapes InferDropout(const LayerInput& input) {
  const float ratio = input.layer.dropout_param().dropout_ratio();
  if (!(ratio > 0 && ratio < 1)) {
    input.Fail("dropout_param.dropout_ratio", "dropout_ratio must be between 0 and 1, exclusive");
  }
  return InferSameShape(input);
}

LayerShapes InferConcat(const LayerInput& input) {
  const caffe::ConcatParameter& p = input.layer.concat_param();
  const int axis =
      input.Axis(p.has_concat_dim() ? static_cast<int>(p.concat_dim()) : p.axis(), "concat_param");
  Shape top = input.bottoms[0];
  for (size_t i = 1; i < input.bottoms.size(); ++i) {
    Shape expected = top;
    if (input.bottoms[i].size() == top.size()) expected[axis] = input.bottoms[i][axis];
    if (input.bottoms[i] != expected) {
      input.Fail("bottom." + std::to_string(i),
                 "bottom \"" + input.layer.bottom(static_cast<int>(i)) + "\" is " +
                     ToString(input.bottoms[i]) + "; expected the shape of \"" +
                     input.layer.bottom(0) + "\", " + ToString(input.bottoms[0]) +
                     ", but for axis " + std::to_string(axis));
    }
    top[axis] += input.bottoms[i][axis];
  }
  return {{top}, {}};
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
  if (p.coeff_size() != 0 && p.operation() != caffe::EltwiseParameter::SUM) {
    input.Fail("eltwise_param", "coeff goes with operation SUM only");
  }
  if (p.coeff_size() != 0 && p.coeff_size() != input.layer.bottom_size()) {
    input.Fail("eltwise_param", "coeff has " + std::to_string(p.coeff_size()) +
                                    " values; expected one for each of " +
                                    std::to_string(input.layer.bottom_size()) + " bottoms");
  }
  return InferSameShape(input);
}

LayerShapes InferFlatten(const LayerInput& input) {
  const caffe::FlattenParameter& p = input.layer.flatten_param();
  const int first = input.Axis(p.axis(), "flatten_param.axis");
  const int last = input.Axis(p.end_axis(), "flatten_param.end_axis");
  if (last < first) input.Fail("flatten_param", "end_axis comes before axis");
  const Shape& bottom = input.bottoms[0];
  Shape top(bottom.begin(), bottom.begin() + first);
  top.push_back(Count(bottom, first, last + 1));
  top.insert(top.end(), bottom.begin() + last + 1, bottom.end());
  return {{top}, {}};
}

LayerShapes InferSplit(const LayerInput& input) {
  return {std::vector<Shape>(input.layer.top_size(), input.bottoms[0]), {}};
}

LayerShapes InferSoftmax(const LayerInput& input) {
  input.Axis(input.layer.softmax_param().axis(), "softmax_param.axis");
  return InferSameShape(input);
}

LayerShapes InferSoftmaxWithLoss(const LayerInput& input) {
  CheckLabels(input, input.Axis(input.layer.softmax_param().axis(), "softmax_param.axis"));
  LayerShapes shapes{{Shape{}}, {}};
  if (input.layer.top_size() == 2) shapes.tops.push_back(input.bottoms[0]);
  return shapes;
}

LayerShapes InferAccuracy(const LayerInput& input) {
  const caffe::AccuracyParameter& p = input.layer.accuracy_param();
  const int axis = input.Axis(p.axis(), "accuracy_param.axis");
  CheckLabels(input, axis);
  const int64_t classes = input.bottoms[0][axis];
  if (p.top_k() == 0 || p.top_k() > classes) {
    input.Fail("accuracy_param.top_k", "top_k is " + std::to_string(p.top_k()) +
                                           "; expected 1 to the number of classes, " +
                                           std::to_string(classes));
  }
  LayerShapes shapes{{Shape{}}, {}};
  if (input.layer.top_size() == 2) shapes.tops.push_back({classes});
  return shapes;
}

}  // namespace poseidon
