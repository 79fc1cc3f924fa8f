#include "caffe_adapter/net/upgrade.h"

#include <glog/logging.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace poseidon {
namespace {

using caffe::LayerParameter;
using caffe::V1LayerParameter;
using google::protobuf::FieldDescriptor;

constexpr int kStatistics = 3;  // blobs of a BatchNorm layer

bool HasV0Layers(const caffe::NetParameter& net) {
  for (const V1LayerParameter& layer : net.layers()) {
    if (layer.has_layer()) return true;
  }
  return false;
}

bool NeedsBatchNormUpgrade(const LayerParameter& layer) {
  if (layer.type() != "BatchNorm" || layer.param_size() != kStatistics) return false;
  for (const caffe::ParamSpec& spec : layer.param()) {
    if (spec.lr_mult() != 0 || spec.decay_mult() != 0) return true;
  }
  return false;
}

// What a layer's type was called in the versions with numbered types. A number has the same meaning
// in every version of Caffe.
struct NumberedType {
  V1LayerParameter::LayerType number;
  const char* name;
};

constexpr NumberedType kNumberedTypes[] = {
    {V1LayerParameter::ABSVAL, "AbsVal"},
    {V1LayerParameter::ACCURACY, "Accuracy"},
    {V1LayerParameter::ARGMAX, "ArgMax"},
    {V1LayerParameter::BNLL, "BNLL"},
    {V1LayerParameter::CONCAT, "Concat"},
    {V1LayerParameter::CONTRASTIVE_LOSS, "ContrastiveLoss"},
    {V1LayerParameter::CONVOLUTION, "Convolution"},
    {V1LayerParameter::DECONVOLUTION, "Deconvolution"},
    {V1LayerParameter::DATA, "Data"},
    {V1LayerParameter::DROPOUT, "Dropout"},
    {V1LayerParameter::DUMMY_DATA, "DummyData"},
    {V1LayerParameter::EUCLIDEAN_LOSS, "EuclideanLoss"},
    {V1LayerParameter::ELTWISE, "Eltwise"},
    {V1LayerParameter::EXP, "Exp"},
    {V1LayerParameter::FLATTEN, "Flatten"},
    {V1LayerParameter::HDF5_DATA, "HDF5Data"},
    {V1LayerParameter::HDF5_OUTPUT, "HDF5Output"},
    {V1LayerParameter::HINGE_LOSS, "HingeLoss"},
    {V1LayerParameter::IM2COL, "Im2col"},
    {V1LayerParameter::IMAGE_DATA, "ImageData"},
    {V1LayerParameter::INFOGAIN_LOSS, "InfogainLoss"},
    {V1LayerParameter::INNER_PRODUCT, "InnerProduct"},
    {V1LayerParameter::LRN, "LRN"},
    {V1LayerParameter::MEMORY_DATA, "MemoryData"},
    {V1LayerParameter::MULTINOMIAL_LOGISTIC_LOSS, "MultinomialLogisticLoss"},
    {V1LayerParameter::MVN, "MVN"},
    {V1LayerParameter::POOLING, "Pooling"},
    {V1LayerParameter::POWER, "Power"},
    {V1LayerParameter::RELU, "ReLU"},
    {V1LayerParameter::SIGMOID, "Sigmoid"},
    {V1LayerParameter::SIGMOID_CROSS_ENTROPY_LOSS, "SigmoidCrossEntropyLoss"},
    {V1LayerParameter::SILENCE, "Silence"},
    {V1LayerParameter::SOFTMAX, "Softmax"},
    {V1LayerParameter::SOFTMAX_LOSS, "SoftmaxWithLoss"},
    {V1LayerParameter::SPLIT, "Split"},
    {V1LayerParameter::SLICE, "Slice"},
    {V1LayerParameter::TANH, "TanH"},
    {V1LayerParameter::THRESHOLD, "Threshold"},
    {V1LayerParameter::WINDOW_DATA, "WindowData"},
};

// Empty for NONE and for numbers that Caffe never gave out.
const char* TypeName(V1LayerParameter::LayerType type) {
  for (const NumberedType& known : kNumberedTypes) {
    if (known.number == type) return known.name;
  }
  return "";
}

// Moves the four fields of transform_param that a data layer's own parameter used to have.
template <typename DataParameter>
void MoveTransformation(DataParameter& data, caffe::TransformationParameter& transform) {
  if (data.has_scale()) transform.set_scale(data.scale());
  if (data.has_mean_file()) transform.set_mean_file(data.mean_file());
  if (data.has_crop_size()) transform.set_crop_size(data.crop_size());
  if (data.has_mirror()) transform.set_mirror(data.mirror());
  data.clear_scale();
  data.clear_mean_file();
  data.clear_crop_size();
  data.clear_mirror();
}

void UpgradeTransformation(V1LayerParameter& layer) {
  if (layer.type() == V1LayerParameter::DATA) {
    MoveTransformation(*layer.mutable_data_param(), *layer.mutable_transform_param());
  } else if (layer.type() == V1LayerParameter::IMAGE_DATA) {
    MoveTransformation(*layer.mutable_image_data_param(), *layer.mutable_transform_param());
  } else if (layer.type() == V1LayerParameter::WINDOW_DATA) {
    MoveTransformation(*layer.mutable_window_data_param(), *layer.mutable_transform_param());
  }
}

caffe::ParamSpec& ParamSpecAt(LayerParameter& layer, int i) {
  while (layer.param_size() <= i) layer.add_param();
  return *layer.mutable_param(i);
}

void SetParamSpecs(const V1LayerParameter& old, LayerParameter& layer) {
  for (int i = 0; i < old.param_size(); ++i) ParamSpecAt(layer, i).set_name(old.param(i));
  for (int i = 0; i < old.blob_share_mode_size(); ++i) {
    ParamSpecAt(layer, i).set_share_mode(old.blob_share_mode(i) == V1LayerParameter::PERMISSIVE
                                             ? caffe::ParamSpec::PERMISSIVE
                                             : caffe::ParamSpec::STRICT);
  }
  for (int i = 0; i < old.blobs_lr_size(); ++i) {
    ParamSpecAt(layer, i).set_lr_mult(old.blobs_lr(i));
  }
  for (int i = 0; i < old.weight_decay_size(); ++i) {
    ParamSpecAt(layer, i).set_decay_mult(old.weight_decay(i));
  }
}

// Both have the same messages, "convolution_param" and so on, under the same names.
void CopyTypeParameters(const V1LayerParameter& old, LayerParameter& layer) {
  std::vector<const FieldDescriptor*> fields;
  old.GetReflection()->ListFields(old, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const FieldDescriptor* target = layer.GetDescriptor()->FindFieldByName(field->name());
    CHECK(target) << field->name();
    layer.GetReflection()
        ->MutableMessage(&layer, target)
        ->CopyFrom(old.GetReflection()->GetMessage(old, field));
  }
}

void UpgradeV1Layer(V1LayerParameter& old, LayerParameter& layer) {
  UpgradeTransformation(old);
  if (old.has_name()) layer.set_name(old.name());
  if (old.has_type()) layer.set_type(TypeName(old.type()));
  layer.mutable_bottom()->Swap(old.mutable_bottom());
  layer.mutable_top()->Swap(old.mutable_top());
  layer.mutable_blobs()->Swap(old.mutable_blobs());  // of a model: most of its bytes
  layer.mutable_include()->Swap(old.mutable_include());
  layer.mutable_exclude()->Swap(old.mutable_exclude());
  layer.mutable_loss_weight()->Swap(old.mutable_loss_weight());
  SetParamSpecs(old, layer);
  CopyTypeParameters(old, layer);
}

LayerParameter InputLayer(const caffe::NetParameter& net, const Locate& locate) {
  LayerParameter layer;
  layer.set_name("input");
  layer.set_type("Input");
  *layer.mutable_top() = net.input();
  caffe::InputParameter& parameter = *layer.mutable_input_param();
  if (net.input_shape_size() > 0) {
    if (net.input_shape_size() != net.input_size()) {
      throw ConfigError(locate("input_shape.0"),
                        "there are " + std::to_string(net.input_shape_size()) +
                            " input_shape entries; expected one for each of " +
                            std::to_string(net.input_size()) + " inputs");
    }
    *parameter.mutable_shape() = net.input_shape();
    return layer;
  }
  constexpr int kAxes = 4;  // of every blob, when input_dim was how to write a shape
  if (net.input_dim_size() != kAxes * net.input_size()) {
    throw ConfigError(locate("input_dim.0"), "there are " + std::to_string(net.input_dim_size()) +
                                                 " values of input_dim; expected 4 for each of " +
                                                 std::to_string(net.input_size()) + " inputs");
  }
  for (int i = 0; i < net.input_dim_size(); ++i) {
    if (i % kAxes == 0) parameter.add_shape();
    parameter.mutable_shape(i / kAxes)->add_dim(net.input_dim(i));
  }
  return layer;
}

// False if there was nothing to make a layer of.
bool UpgradeInput(caffe::NetParameter& net, const Locate& locate) {
  const bool has_shape = net.input_size() > 0 && net.input_shape_size() + net.input_dim_size() > 0;
  if (has_shape) {
    *net.add_layer() = InputLayer(net, locate);
    for (int i = net.layer_size() - 1; i > 0; --i) net.mutable_layer()->SwapElements(i - 1, i);
  }
  net.clear_input();
  net.clear_input_shape();
  net.clear_input_dim();
  return has_shape;
}

// "layer.7.type" is "PREFIX.ORIGINS[7].type"; where ORIGINS has -1 it is `input`.
Locate Relocate(const Locate& locate, const std::string& prefix, const std::vector<int>& origins) {
  return [locate, prefix, origins](const std::string& path) {
    const std::string start = "layer.";
    if (!path.starts_with(start)) return locate(path);
    const size_t end = std::min(path.find('.', start.size()), path.size());
    const int origin = origins.at(std::stoul(path.substr(start.size(), end - start.size())));
    if (origin < 0) return locate("input.0");
    return locate(prefix + "." + std::to_string(origin) + path.substr(end));
  };
}

}  // namespace

bool NeedsUpgrade(const caffe::NetParameter& net) {
  if (net.layers_size() > 0 || net.input_size() > 0) return true;
  for (const LayerParameter& layer : net.layer()) {
    if (NeedsBatchNormUpgrade(layer)) return true;
  }
  return false;
}

Locate UpgradeNet(caffe::NetParameter& net, const Locate& locate) {
  if (!NeedsUpgrade(net)) return locate;
  if (net.layer_size() > 0 && net.layers_size() > 0) {
    throw ConfigError(locate("layers.0"),
                      "the net has both `layer` and, in the old format, `layers`; write all of its "
                      "layers in one of them");
  }
  const bool old = net.layers_size() > 0;
  std::vector<int> origins;
  if (HasV0Layers(net)) {
    UpgradeV0Net(net, locate, origins);
  } else {
    origins.resize(net.layer_size() + net.layers_size());
    std::iota(origins.begin(), origins.end(), 0);
  }
  for (V1LayerParameter& layer : *net.mutable_layers()) UpgradeV1Layer(layer, *net.add_layer());
  net.clear_layers();
  if (UpgradeInput(net, locate)) origins.insert(origins.begin(), -1);
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (!NeedsBatchNormUpgrade(layer)) continue;
    for (caffe::ParamSpec& spec : *layer.mutable_param()) {
      spec.set_lr_mult(0);
      spec.set_decay_mult(0);
    }
  }
  return Relocate(locate, old ? "layers" : "layer", origins);
}

}  // namespace poseidon
