#include "caffe_adapter/data/sample_source.h"

#include <glog/logging.h>

namespace poseidon {

bool ReadsSamples(const std::string& layer_type) {
  return layer_type == "Data" || layer_type == "ImageData" || layer_type == "HDF5Data" ||
         layer_type == "WindowData";
}

std::unique_ptr<SampleSource> MakeSampleSource(const LayerDescription& layer) {
  CHECK(ReadsSamples(layer.type())) << layer.type();
  if (layer.type() == "ImageData") return MakeImageListSource(layer);
  if (layer.type() == "HDF5Data") return MakeHdf5Source(layer);
  if (layer.type() == "WindowData") return MakeWindowSource(layer);
  return MakeDatumSource(layer);
}

SampleOrder OrderOf(const caffe::LayerParameter& layer) {
  if (layer.type() == "ImageData") {
    return {layer.image_data_param().shuffle(), layer.image_data_param().rand_skip()};
  }
  if (layer.type() == "HDF5Data") return {layer.hdf5_data_param().shuffle(), 0};
  return {false, layer.data_param().rand_skip()};
}

}  // namespace poseidon
