#include "caffe_adapter/data/sample_shapes.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/data/transform.h"
#include "caffe_adapter/files/file.h"
#include "caffe_adapter/stores/record_store.h"

namespace poseidon {
namespace {

bool IsHdf5(const LayerInput& input) { return input.layer.type() == "HDF5Data"; }

Location TransformPlace(const LayerInput& input) {
  return input.options.locate(input.path + ".transform_param");
}

bool DataIsThere(const caffe::LayerParameter& layer) {
  if (layer.type() == "Data") {
    return HasRecordStore(layer.data_param().source(), layer.data_param().backend());
  }
  std::error_code ignored;
  return std::filesystem::exists(DataPath(layer), ignored);
}

// One sample of the blob, by an Input layer that makes one of this name. A layer of the phase
// itself can't be found: no two layers of a phase make the same blob.
std::optional<Shape> InputLayerShape(const caffe::NetParameter& net, const std::string& blob) {
  for (const caffe::LayerParameter& layer : net.layer()) {
    const auto top = std::find(layer.top().begin(), layer.top().end(), blob);
    const auto& shapes = layer.input_param().shape();
    if (layer.type() != "Input" || top == layer.top().end() || shapes.empty()) continue;
    const int index = shapes.size() == 1 ? 0 : static_cast<int>(top - layer.top().begin());
    if (index >= shapes.size() || shapes[index].dim().empty()) continue;
    return Shape(shapes[index].dim().begin() + 1, shapes[index].dim().end());
  }
  return std::nullopt;
}

// HDF5 has no records of one kind: each top is a dataset of its own.
std::optional<std::vector<Shape>> InputLayerShapes(const LayerInput& input) {
  std::vector<Shape> shapes;
  for (const std::string& top : input.layer.top()) {
    const std::optional<Shape> shape = InputLayerShape(input.net, top);
    if (!shape) return std::nullopt;
    shapes.push_back(*shape);
  }
  return shapes;
}

// What the layer's settings say of an image's channels; most are in color.
int64_t SuggestedChannels(const LayerInput& input) {
  constexpr int64_t kColor = 3;
  constexpr int64_t kGray = 1;
  if (input.layer.type() == "ImageData") {
    return input.layer.image_data_param().is_color() ? kColor : kGray;
  }
  const caffe::TransformationParameter& transform = input.layer.transform_param();
  if (ChannelsOf(transform, TransformPlace(input)) == ImageChannels::kGray) return kGray;
  return transform.mean_value_size() > 1 ? transform.mean_value_size() : kColor;
}

struct RecordShape {
  Shape shape;  // channels, height, width
  ShapeSource source;
};

std::optional<RecordShape> RecordShapeWithoutData(const LayerInput& input) {
  constexpr size_t kAxes = 3;
  const std::optional<Shape> declared = InputLayerShape(input.net, input.layer.top(0));
  if (declared && declared->size() == kAxes) return {{*declared, ShapeSource::kInputLayer}};
  const int64_t channels = SuggestedChannels(input);
  const caffe::ImageDataParameter& images = input.layer.image_data_param();
  if (images.new_height() > 0) {
    return {{{channels, images.new_height(), images.new_width()}, ShapeSource::kImageSize}};
  }
  const int64_t crop = input.layer.transform_param().crop_size();
  if (crop > 0) return {{{channels, crop, crop}, ShapeSource::kCropSize}};
  return std::nullopt;
}

Shape FirstRecordShape(const LayerInput& input) {
  return input.layer.type() == "ImageData" ? FirstListedImageShape(input.layer)
                                           : FirstDatumShape(input.layer, TransformPlace(input));
}

RecordShape ShapeOfRecords(const LayerInput& input) {
  if (input.options.record_shape) return {*input.options.record_shape, ShapeSource::kGiven};
  if (input.options.data_optional && !DataIsThere(input.layer)) {
    if (const auto found = RecordShapeWithoutData(input)) return *found;
  }
  return {FirstRecordShape(input), ShapeSource::kData};
}

SampleShapes ShapesOfRows(const LayerInput& input) {
  if (input.options.record_shape) {
    std::vector<Shape> tops(input.layer.top_size());
    tops[0] = *input.options.record_shape;
    return {std::move(tops), ShapeSource::kGiven};
  }
  if (input.options.data_optional && !DataIsThere(input.layer)) {
    if (auto tops = InputLayerShapes(input)) return {std::move(*tops), ShapeSource::kInputLayer};
  }
  return {FirstHdf5Shapes(input.layer), ShapeSource::kData};
}

SampleShapes ShapesOfWindows(const LayerInput& input) {
  const bool there = DataIsThere(input.layer);
  if (!there && !input.options.data_optional && !input.options.record_shape) {
    ReadFile(input.layer.window_data_param().source());  // throws, with the reason
  }
  return {{WindowShape(input.layer), {}}, there ? ShapeSource::kData : ShapeSource::kCropSize};
}

}  // namespace

std::string DataPath(const caffe::LayerParameter& layer) {
  if (layer.type() == "Data") return layer.data_param().source();
  if (layer.type() == "ImageData") return layer.image_data_param().source();
  if (layer.type() == "HDF5Data") return layer.hdf5_data_param().source();
  if (layer.type() == "WindowData") return layer.window_data_param().source();
  return "";
}

bool DataIsMissing(const caffe::LayerParameter& layer) {
  std::string path = DataPath(layer);
  if (path.empty()) return false;
  if (layer.type() == "Data") {
    // The files without which the stores say that there is no database.
    const bool is_lmdb = layer.data_param().backend() == caffe::DataParameter::LMDB;
    path += is_lmdb ? "/data.mdb" : "/CURRENT";
  }
  std::error_code unknown;
  return !std::filesystem::exists(path, unknown) && !unknown;
}

SampleShapes ShapesOfSamples(const LayerInput& input) {
  if (IsHdf5(input)) return ShapesOfRows(input);
  if (input.layer.type() == "WindowData") return ShapesOfWindows(input);
  const RecordShape record = ShapeOfRecords(input);
  SampleShapes samples;
  samples.source = record.source;
  samples.tops = {
      TransformedShape(input.layer.transform_param(), record.shape, TransformPlace(input))};
  if (input.layer.top_size() == 2) samples.tops.push_back({});  // the label
  return samples;
}

}  // namespace poseidon
