#include "caffe_adapter/data/sample_source.h"

#include <glog/logging.h>

#include "caffe_adapter/data/transform.h"

namespace poseidon {

bool ReadsSamples(const std::string& layer_type) {
  return layer_type == "Data" || layer_type == "ImageData" || layer_type == "HDF5Data";
}

std::unique_ptr<SampleSource> MakeSampleSource(const LayerDescription& layer) {
  CHECK(ReadsSamples(layer.type())) << layer.type();
  if (layer.type() == "ImageData") return MakeImageListSource(layer);
  if (layer.type() == "HDF5Data") return MakeHdf5Source(layer);
  return MakeDatumSource(layer);
}

SampleOrder OrderOf(const caffe::LayerParameter& layer) {
  if (layer.type() == "ImageData") {
    return {layer.image_data_param().shuffle(), layer.image_data_param().rand_skip()};
  }
  if (layer.type() == "HDF5Data") return {layer.hdf5_data_param().shuffle(), 0};
  return {false, layer.data_param().rand_skip()};
}

std::vector<Shape> SampleShapes(const caffe::LayerParameter& layer,
                                const std::optional<Shape>& record_shape, const Locate& locate) {
  if (layer.type() == "HDF5Data") return FirstHdf5Shapes(layer);
  const Location where = locate("transform_param");
  const Shape record = record_shape                  ? *record_shape
                       : layer.type() == "ImageData" ? FirstListedImageShape(layer)
                                                     : FirstDatumShape(layer, where);
  std::vector<Shape> shapes = {TransformedShape(layer.transform_param(), record, where)};
  if (layer.top_size() == 2) shapes.push_back({});  // the label
  return shapes;
}

}  // namespace poseidon
