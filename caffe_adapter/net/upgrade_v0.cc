// From V0 layers, the form of Caffe's first nets, to V1.
#include <glog/logging.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "caffe_adapter/net/upgrade.h"
#include "core/error.h"

namespace poseidon {
namespace {

using caffe::V0LayerParameter;
using caffe::V1LayerParameter;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct V0Type {
  std::string_view name;
  V1LayerParameter::LayerType type;
};

constexpr V0Type kTypes[] = {
    {"accuracy", V1LayerParameter::ACCURACY},
    {"bnll", V1LayerParameter::BNLL},
    {"concat", V1LayerParameter::CONCAT},
    {"conv", V1LayerParameter::CONVOLUTION},
    {"data", V1LayerParameter::DATA},
    {"dropout", V1LayerParameter::DROPOUT},
    {"euclidean_loss", V1LayerParameter::EUCLIDEAN_LOSS},
    {"flatten", V1LayerParameter::FLATTEN},
    {"hdf5_data", V1LayerParameter::HDF5_DATA},
    {"hdf5_output", V1LayerParameter::HDF5_OUTPUT},
    {"im2col", V1LayerParameter::IM2COL},
    {"images", V1LayerParameter::IMAGE_DATA},
    {"infogain_loss", V1LayerParameter::INFOGAIN_LOSS},
    {"innerproduct", V1LayerParameter::INNER_PRODUCT},
    {"lrn", V1LayerParameter::LRN},
    {"multinomial_logistic_loss", V1LayerParameter::MULTINOMIAL_LOGISTIC_LOSS},
    {"pool", V1LayerParameter::POOLING},
    {"relu", V1LayerParameter::RELU},
    {"sigmoid", V1LayerParameter::SIGMOID},
    {"softmax", V1LayerParameter::SOFTMAX},
    {"softmax_loss", V1LayerParameter::SOFTMAX_LOSS},
    {"split", V1LayerParameter::SPLIT},
    {"tanh", V1LayerParameter::TANH},
    {"window_data", V1LayerParameter::WINDOW_DATA},
};

// Where a field of a V0 layer of some type went in V1.
struct V0Field {
  std::string_view name;
  std::string_view type;     // "" for any type
  std::string_view message;  // field of V1LayerParameter
  std::string_view field;    // field of that message
};

constexpr V0Field kFields[] = {
    {"num_output", "conv", "convolution_param", "num_output"},
    {"num_output", "innerproduct", "inner_product_param", "num_output"},
    {"biasterm", "conv", "convolution_param", "bias_term"},
    {"biasterm", "innerproduct", "inner_product_param", "bias_term"},
    {"weight_filler", "conv", "convolution_param", "weight_filler"},
    {"weight_filler", "innerproduct", "inner_product_param", "weight_filler"},
    {"bias_filler", "conv", "convolution_param", "bias_filler"},
    {"bias_filler", "innerproduct", "inner_product_param", "bias_filler"},
    {"pad", "conv", "convolution_param", "pad"},
    {"pad", "pool", "pooling_param", "pad"},
    {"kernelsize", "conv", "convolution_param", "kernel_size"},
    {"kernelsize", "pool", "pooling_param", "kernel_size"},
    {"group", "conv", "convolution_param", "group"},
    {"stride", "conv", "convolution_param", "stride"},
    {"stride", "pool", "pooling_param", "stride"},
    {"pool", "pool", "pooling_param", "pool"},
    {"dropout_ratio", "dropout", "dropout_param", "dropout_ratio"},
    {"local_size", "lrn", "lrn_param", "local_size"},
    {"alpha", "lrn", "lrn_param", "alpha"},
    {"beta", "lrn", "lrn_param", "beta"},
    {"k", "lrn", "lrn_param", "k"},
    {"source", "data", "data_param", "source"},
    {"source", "hdf5_data", "hdf5_data_param", "source"},
    {"source", "images", "image_data_param", "source"},
    {"source", "window_data", "window_data_param", "source"},
    {"source", "infogain_loss", "infogain_loss_param", "source"},
    {"scale", "", "transform_param", "scale"},
    {"meanfile", "", "transform_param", "mean_file"},
    {"cropsize", "", "transform_param", "crop_size"},
    {"mirror", "", "transform_param", "mirror"},
    {"batchsize", "data", "data_param", "batch_size"},
    {"batchsize", "hdf5_data", "hdf5_data_param", "batch_size"},
    {"batchsize", "images", "image_data_param", "batch_size"},
    {"batchsize", "window_data", "window_data_param", "batch_size"},
    {"rand_skip", "data", "data_param", "rand_skip"},
    {"rand_skip", "images", "image_data_param", "rand_skip"},
    {"shuffle_images", "images", "image_data_param", "shuffle"},
    {"new_height", "images", "image_data_param", "new_height"},
    {"new_width", "images", "image_data_param", "new_width"},
    {"concat_dim", "concat", "concat_param", "concat_dim"},
    {"det_fg_threshold", "window_data", "window_data_param", "fg_threshold"},
    {"det_bg_threshold", "window_data", "window_data_param", "bg_threshold"},
    {"det_fg_fraction", "window_data", "window_data_param", "fg_fraction"},
    {"det_context_pad", "window_data", "window_data_param", "context_pad"},
    {"det_crop_mode", "window_data", "window_data_param", "crop_mode"},
    {"hdf5_output_param", "hdf5_output", "", "hdf5_output_param"},
};

const V0Field* FindField(std::string_view name, std::string_view type) {
  for (const V0Field& field : kFields) {
    if (field.name == name && (field.type.empty() || field.type == type)) return &field;
  }
  return nullptr;
}

// The field called `name`, which the schema has.
const FieldDescriptor& FieldOf(const Message& message, std::string_view name) {
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByName({name.data(), name.size()});
  CHECK(field) << message.GetTypeName() << " has no field " << name;
  return *field;
}

// Copies the value of a field; a repeated one gets it as its only value.
void CopyField(const Message& from, const FieldDescriptor& source, Message& to,
               const FieldDescriptor& target) {
  const Reflection& get = *from.GetReflection();
  const Reflection& set = *to.GetReflection();
  const bool repeated = target.is_repeated();
  switch (source.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      repeated ? set.AddUInt32(&to, &target, get.GetUInt32(from, &source))
               : set.SetUInt32(&to, &target, get.GetUInt32(from, &source));
      break;
    case FieldDescriptor::CPPTYPE_INT32:  // new_height, new_width: unsigned in V1
      set.SetUInt32(&to, &target, static_cast<uint32_t>(get.GetInt32(from, &source)));
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      set.SetFloat(&to, &target, get.GetFloat(from, &source));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      set.SetBool(&to, &target, get.GetBool(from, &source));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      set.SetString(&to, &target, get.GetString(from, &source));
      break;
    case FieldDescriptor::CPPTYPE_ENUM:  // pool: the same numbers in both
      set.SetEnumValue(&to, &target, get.GetEnumValue(from, &source));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      set.MutableMessage(&to, &target)->CopyFrom(get.GetMessage(from, &source));
      break;
    default:
      LOG(FATAL) << "no field of a V0 layer is a " << source.cpp_type_name();
  }
}

V1LayerParameter::LayerType ToV1Type(const V0LayerParameter& layer, const Location& where) {
  std::string known;
  for (const V0Type& type : kTypes) {
    if (type.name == layer.type()) return type.type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  throw ConfigError(where, "layer \"" + layer.name() + "\": unknown type \"" + layer.type() +
                               "\" of a V0 layer; known are " + known);
}

void UpgradeLayer(V1LayerParameter& layer, const Location& where) {
  if (!layer.has_layer()) return;
  V0LayerParameter old;
  old.Swap(layer.mutable_layer());
  layer.clear_layer();
  layer.set_name(old.name());
  if (old.has_type()) layer.set_type(ToV1Type(old, where));
  layer.mutable_blobs()->Swap(old.mutable_blobs());
  *layer.mutable_blobs_lr() = old.blobs_lr();
  *layer.mutable_weight_decay() = old.weight_decay();

  std::vector<const FieldDescriptor*> fields;
  old.GetReflection()->ListFields(old, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated() || field->name() == "name" || field->name() == "type") continue;
    const V0Field* place = FindField(field->name(), old.type());
    if (!place) {
      LOG(WARNING) << where.ToString() << ": layer \"" << old.name() << "\": a V0 layer of type "
                   << old.type() << " has no use for " << field->name();
      continue;
    }
    Message* target = &layer;
    if (!place->message.empty()) {
      target =
          layer.GetReflection()->MutableMessage(target, &FieldOf(layer, place->message), nullptr);
    }
    CopyField(old, *field, *target, FieldOf(*target, place->field));
  }
}

// Gives a layer whose bottom a padding layer makes that layer's bottom and pad.
void TakePadding(V1LayerParameter& layer, const V1LayerParameter& padding, const Location& where) {
  const std::string& type = layer.layer().type();
  if ((type != "conv" && type != "pool") || layer.bottom_size() != 1) {
    throw ConfigError(where, "layer \"" + layer.layer().name() + "\": has the padding layer \"" +
                                 padding.layer().name() +
                                 "\" as bottom; expected of type conv or pool with one bottom");
  }
  if (padding.bottom_size() != 1 || padding.top_size() != 1) {
    throw ConfigError(
        where, "padding layer \"" + padding.layer().name() + "\": expected one bottom and one top");
  }
  layer.mutable_layer()->set_pad(padding.layer().pad());
  layer.set_bottom(0, padding.bottom(0));
}

}  // namespace

void UpgradeV0Net(caffe::NetParameter& net, const Locate& locate, std::vector<int>& origins) {
  google::protobuf::RepeatedPtrField<V1LayerParameter> old;
  old.Swap(net.mutable_layers());
  std::map<std::string, int> padding_of;  // by top: the padding layer that makes it
  for (int i = 0; i < old.size(); ++i) {
    V1LayerParameter& layer = *old.Mutable(i);
    const Location where = locate("layers." + std::to_string(i));
    const bool is_padding = layer.layer().type() == "padding";
    for (const std::string& bottom :
         std::vector<std::string>(layer.bottom().begin(), layer.bottom().end())) {
      const auto found = padding_of.find(bottom);
      if (found != padding_of.end()) TakePadding(layer, old.Get(found->second), where);
    }
    for (const std::string& top : layer.top()) {
      if (is_padding) {
        padding_of[top] = i;
      } else {
        padding_of.erase(top);
      }
    }
    if (is_padding) continue;
    V1LayerParameter& kept = *net.add_layers();
    kept = layer;
    UpgradeLayer(kept, where);
    origins.push_back(i);
  }
}

}  // namespace poseidon
