// What a data layer reads: whether it is there, and its shapes, as far as they can be known with or
// without the data.
#pragma once

#include <string>
#include <vector>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/shape.h"

namespace poseidon {

struct SampleShapes {
  std::vector<Shape> tops;  // of one sample at each top, after cropping: {3, 224, 224}, {}
  ShapeSource source = ShapeSource::kData;
};

// The path of what a Data, ImageData, HDF5Data or WindowData layer reads; empty for other layers.
std::string DataPath(const caffe::LayerParameter& layer);

// Whether there is nothing to read for a data layer. What is there may be damaged, and what can't
// be looked at may be there: neither is missing. Pure but for asking the file system.
bool DataIsMissing(const caffe::LayerParameter& layer);

// The shapes of one sample of a Data, ImageData, HDF5Data or WindowData layer. Of WindowData its
// crop_size is all that matters. Of the others: from DescribeOptions::
// record_shape, which is the first top's (a label is taken to be one number); else from the first
// record of the data. Where these are not there and DescribeOptions::data_optional is set, from, in
// this order,
//   - an Input layer that the phase leaves out, with the same top: nets that also have a deployed
//     form (`include { phase: TEST stage: "deploy" }`) say there what they read;
//   - new_height and new_width of an ImageData layer;
//   - crop_size, with the channels of a color image, unless force_gray, is_color or several
//     mean_value entries say otherwise.
//
// Throws as MakeSampleSource: DataError naming the data that are not there if nothing tells.
SampleShapes ShapesOfSamples(const LayerInput& input);

}  // namespace poseidon
