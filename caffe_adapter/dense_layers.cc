// Shapes of layers with parameters that are no convolutions.
#include "caffe_adapter/layer_types.h"

namespace poseidon {

LayerShapes InferInnerProduct(const LayerInput& input) {
  const caffe::InnerProductParameter& p = input.layer.inner_product_param();
  if (p.num_output() == 0) input.Fail("inner_product_param", "num_output must be at least 1");
  const Shape& bottom = input.bottoms[0];
  const int axis = input.Axis(p.axis(), "inner_product_param.axis");
  const int64_t outputs = p.num_output();
  const int64_t inputs = Count(bottom, axis, static_cast<int>(bottom.size()));
  Shape top(bottom.begin(), bottom.begin() + axis);
  top.push_back(outputs);
  LayerShapes shapes{{top}, {}};
  shapes.parameters.push_back(
      {p.transpose() ? Shape{inputs, outputs} : Shape{outputs, inputs}, p.weight_filler()});
  if (p.bias_term()) shapes.parameters.push_back({{outputs}, p.bias_filler()});
  return shapes;
}

// Mean, variance and the factor that both are to be divided by: running sums, never learned.
LayerShapes InferBatchNorm(const LayerInput& input) {
  const Shape& bottom = input.bottoms[0];
  const int64_t channels = bottom.size() < 2 ? 1 : bottom[1];
  for (int i = 0; i < input.layer.param_size(); ++i) {
    if (input.layer.param(i).lr_mult() != 0) {
      input.Fail("param." + std::to_string(i), "statistics are not learned: lr_mult must be 0");
    }
  }
  const ParameterDescription statistic{.shape = {channels}, .filler = {}, .lr_mult = 0};
  const ParameterDescription factor{.shape = {1}, .filler = {}, .lr_mult = 0};
  return {{bottom}, {statistic, statistic, factor}};
}

LayerShapes InferScale(const LayerInput& input) {
  const caffe::ScaleParameter& p = input.layer.scale_param();
  const Shape& bottom = input.bottoms[0];
  const int axis = input.Axis(p.axis(), "scale_param.axis");
  const int axes = static_cast<int>(bottom.size());
  const bool learned = input.bottoms.size() == 1;
  const int num_axes = learned ? p.num_axes() : static_cast<int>(input.bottoms[1].size());
  if (num_axes < -1 || num_axes > axes - axis) {
    input.Fail("scale_param", "a scale of " + std::to_string(num_axes) + " axes from axis " +
                                  std::to_string(axis) + " does not fit the bottom, " +
                                  ToString(bottom));
  }
  const auto end = num_axes == -1 ? bottom.end() : bottom.begin() + axis + num_axes;
  const Shape scale(bottom.begin() + axis, end);
  if (!learned && input.bottoms[1] != scale) {
    input.Fail("", "bottom \"" + input.layer.bottom(1) + "\" is " + ToString(input.bottoms[1]) +
                       "; expected " + ToString(scale));
  }
  LayerShapes shapes{{bottom}, {}};
  if (learned) {
    caffe::FillerParameter filler = p.filler();
    if (!p.has_filler()) filler.set_value(1);  // unlike other layers: the identity
    shapes.parameters.push_back({scale, filler});
  }
  if (p.bias_term()) shapes.parameters.push_back({scale, p.bias_filler()});
  return shapes;
}

}  // namespace poseidon
