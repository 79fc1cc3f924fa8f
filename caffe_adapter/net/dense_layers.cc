// Shapes of layers with parameters that slide no window.
#include "caffe_adapter/net/layer_types.h"

namespace poseidon {
namespace {

// The parameter of a Scale or Bias layer, or the shape that its second bottom must have: the axes
// of bottom 0 from `axis` on, `num_axes` of them or -1 for all.
struct Span {
  int axis;
  int num_axes;
  std::string parameter;  // "scale_param"
};

Shape SpanShape(const LayerInput& input, const Span& span) {
  const Shape& bottom = input.bottoms[0];
  const int axis = input.Axis(span.axis, span.parameter + ".axis");
  if (span.num_axes < -1 || span.num_axes > static_cast<int>(bottom.size()) - axis) {
    input.Fail(span.parameter + ".num_axes", std::to_string(span.num_axes) + " axes from axis " +
                                                 std::to_string(axis) + " are not in " +
                                                 input.Bottom(0));
  }
  const auto end = span.num_axes == -1 ? bottom.end() : bottom.begin() + axis + span.num_axes;
  return {bottom.begin() + axis, end};
}

// A second bottom takes the place of the parameter, however many axes it has; a scalar fits
// anywhere.
void CheckSecondBottom(const LayerInput& input, const Span& span) {
  const Shape& second = input.bottoms[1];
  if (second.empty()) return;
  const Shape expected =
      SpanShape(input, {span.axis, static_cast<int>(second.size()), span.parameter});
  if (second != expected) {
    input.Fail("bottom.1", "bottom \"" + input.layer.bottom(1) + "\" is " + ToString(second) +
                               "; expected " + ToString(expected));
  }
}

}  // namespace

LayerShapes InferInnerProduct(const LayerInput& input) {
  const caffe::InnerProductParameter& p = input.layer.inner_product_param();
  if (p.num_output() == 0) {
    input.Fail("inner_product_param.num_output", "num_output must be at least 1");
  }
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

// A row of the weights for each value of the bottom, an index.
LayerShapes InferEmbed(const LayerInput& input) {
  const caffe::EmbedParameter& p = input.layer.embed_param();
  if (p.num_output() == 0) input.Fail("embed_param.num_output", "num_output must be at least 1");
  if (p.input_dim() == 0) input.Fail("embed_param.input_dim", "input_dim must be at least 1");
  const int64_t outputs = p.num_output();
  Shape top = input.bottoms[0];
  top.push_back(outputs);
  LayerShapes shapes{{top}, {}};
  shapes.parameters.push_back({{p.input_dim(), outputs}, p.weight_filler()});
  if (p.bias_term()) shapes.parameters.push_back({{outputs}, p.bias_filler()});
  return shapes;
}

// Mean, variance and the factor that both are to be divided by: running sums, never learned.
LayerShapes InferBatchNorm(const LayerInput& input) {
  const Shape& bottom = input.bottoms[0];
  if (bottom.size() < 2) input.Fail("", input.Bottom(0) + ", has no axis 1, the channels");
  for (int i = 0; i < input.layer.param_size(); ++i) {
    if (input.layer.param(i).lr_mult() != 0) {
      input.Fail("param." + std::to_string(i), "statistics are not learned: lr_mult must be 0");
    }
  }
  const ParameterDescription statistic{.shape = {bottom[1]}, .filler = {}, .lr_mult = 0};
  const ParameterDescription factor{.shape = {1}, .filler = {}, .lr_mult = 0};
  return {{bottom}, {statistic, statistic, factor}};
}

LayerShapes InferScale(const LayerInput& input) {
  const caffe::ScaleParameter& p = input.layer.scale_param();
  const bool learned = input.bottoms.size() == 1;
  Span span{p.axis(), p.num_axes(), "scale_param"};
  if (!learned) {
    CheckSecondBottom(input, span);
    span.num_axes = static_cast<int>(input.bottoms[1].size());
  }
  LayerShapes shapes{{input.bottoms[0]}, {}};
  if (learned) {
    caffe::FillerParameter filler = p.filler();
    if (!p.has_filler()) filler.set_value(1);  // unlike other layers: the identity
    shapes.parameters.push_back({SpanShape(input, span), filler});
  }
  if (p.bias_term()) shapes.parameters.push_back({SpanShape(input, span), p.bias_filler()});
  return shapes;
}

LayerShapes InferBias(const LayerInput& input) {
  const caffe::BiasParameter& p = input.layer.bias_param();
  const Span span{p.axis(), p.num_axes(), "bias_param"};
  LayerShapes shapes{{input.bottoms[0]}, {}};
  if (input.bottoms.size() == 1) {
    shapes.parameters.push_back({SpanShape(input, span), p.filler()});
  } else {
    CheckSecondBottom(input, span);
  }
  return shapes;
}

// The slope below zero: one for each channel, or one.
LayerShapes InferPRelu(const LayerInput& input) {
  const caffe::PReLUParameter& p = input.layer.prelu_param();
  const Shape& bottom = input.bottoms[0];
  if (bottom.size() < 2) input.Fail("", input.Bottom(0) + ", has no axis 1, the channels");
  caffe::FillerParameter filler = p.filler();
  if (!p.has_filler()) filler.set_value(0.25F);  // He et al., as in Caffe
  return {{bottom}, {{p.channel_shared() ? Shape{} : Shape{bottom[1]}, filler}}};
}

// A blob of the net's own as a top. Caffe starts it at zero.
LayerShapes InferParameter(const LayerInput& input) {
  const caffe::BlobShape& shape = input.layer.parameter_param().shape();
  const Shape top = {shape.dim().begin(), shape.dim().end()};
  return {{top}, {{top, {}}}};
}

}  // namespace poseidon
