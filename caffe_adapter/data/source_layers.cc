// Shapes of layers without bottoms.
#include "caffe_adapter/data/sample_shapes.h"
#include "caffe_adapter/data/transform.h"
#include "caffe_adapter/net/layer_types.h"

namespace poseidon {
namespace {

Shape ToShape(const caffe::BlobShape& shape) { return {shape.dim().begin(), shape.dim().end()}; }

// Caffe's older place for transform_param's fields, which Caffe moves in nets of `layers` and
// passes over in nets of `layer`; here they are refused there.
template <typename DataParameter>
void CheckDataParameter(const LayerInput& input, const DataParameter& data,
                        const std::string& field) {
  if (data.has_scale() || data.has_mean_file() || data.has_crop_size() || data.has_mirror()) {
    input.Fail(field,
               "scale, mean_file, crop_size and mirror belong into transform_param, not " + field);
  }
}

template <typename Parameter>
void CheckSource(const LayerInput& input, const Parameter& parameter, const std::string& field) {
  if (parameter.source().empty()) {
    input.Fail(field, field + ".source, what to read, is missing");
  }
  if (parameter.batch_size() == 0 && !input.options.batch_size) {
    input.Fail(parameter.has_batch_size() ? field + ".batch_size" : field,
               "batch_size must be at least 1");
  }
}

// Tops of a batch of samples.
LayerShapes SampleTops(const LayerInput& input, uint32_t batch_size) {
  const int64_t batch = input.options.batch_size.value_or(batch_size);
  SampleShapes samples = ShapesOfSamples(input);
  for (Shape& shape : samples.tops) shape.insert(shape.begin(), batch);
  return {std::move(samples.tops), {}, samples.source};
}

// Of a repeated field that is given once for all tops or once for each.
void CheckGivenForTops(const LayerInput& input, const std::string& field, int given) {
  const int tops = input.layer.top_size();
  if (given == 1 || given == tops) return;
  input.Fail(given == 0 ? "" : field, "there are " + std::to_string(given) + " " + field +
                                          " entries; expected 1 or one for each of " +
                                          std::to_string(tops) + " tops");
}

template <typename Values>
auto ForTop(const Values& values, int top) {
  return values.Get(values.size() == 1 ? 0 : top);
}

// Num, channels, height, width: how shapes were written first.
std::vector<Shape> OldDummyShapes(const LayerInput& input) {
  const caffe::DummyDataParameter& parameter = input.layer.dummy_data_param();
  if (parameter.shape_size() > 0) {
    input.Fail("dummy_data_param",
               "give shape or, in the old form, num, channels, height and width; not both");
  }
  CheckGivenForTops(input, "dummy_data_param.num", parameter.num_size());
  CheckGivenForTops(input, "dummy_data_param.channels", parameter.channels_size());
  CheckGivenForTops(input, "dummy_data_param.height", parameter.height_size());
  CheckGivenForTops(input, "dummy_data_param.width", parameter.width_size());
  std::vector<Shape> shapes;
  for (int i = 0; i < input.layer.top_size(); ++i) {
    shapes.push_back({ForTop(parameter.num(), i), ForTop(parameter.channels(), i),
                      ForTop(parameter.height(), i), ForTop(parameter.width(), i)});
  }
  return shapes;
}

LayerShapes WithBatchSize(const LayerInput& input, std::vector<Shape> shapes) {
  for (Shape& shape : shapes) {
    if (input.options.batch_size && !shape.empty()) shape[0] = *input.options.batch_size;
  }
  return {std::move(shapes), {}};
}

}  // namespace

LayerShapes InferData(const LayerInput& input) {
  const caffe::DataParameter& data = input.layer.data_param();
  CheckDataParameter(input, data, "data_param");
  CheckSource(input, data, "data_param");
  return SampleTops(input, data.batch_size());
}

LayerShapes InferImageData(const LayerInput& input) {
  const caffe::ImageDataParameter& data = input.layer.image_data_param();
  CheckDataParameter(input, data, "image_data_param");
  CheckSource(input, data, "image_data_param");
  if ((data.new_height() == 0) != (data.new_width() == 0)) {
    input.Fail("image_data_param", "give both new_height and new_width, or neither");
  }
  return SampleTops(input, data.batch_size());
}

LayerShapes InferHdf5Data(const LayerInput& input) {
  if (input.layer.has_transform_param()) {
    input.Fail("transform_param", "what HDF5 files hold is not transformed; leave it out");
  }
  CheckSource(input, input.layer.hdf5_data_param(), "hdf5_data_param");
  return SampleTops(input, input.layer.hdf5_data_param().batch_size());
}

LayerShapes InferWindowData(const LayerInput& input) {
  const caffe::WindowDataParameter& data = input.layer.window_data_param();
  const caffe::TransformationParameter& transform = input.layer.transform_param();
  if (data.has_mean_file() || data.has_crop_size() || data.has_mirror()) {
    input.Fail("window_data_param",
               "mean_file, crop_size and mirror belong into transform_param, not "
               "window_data_param");
  }
  if (data.has_scale() && transform.has_scale()) {
    input.Fail("window_data_param.scale",
               "give scale in window_data_param or in transform_param, not in both");
  }
  CheckSource(input, data, "window_data_param");
  if (transform.crop_size() == 0) {
    input.Fail("transform_param",
               "transform_param.crop_size, the extent that windows are scaled "
               "to, is missing");
  }
  if (ChannelsOf(transform) == ImageChannels::kGray) {
    input.Fail("transform_param.force_gray", "the images are read in color; leave force_gray out");
  }
  if (int64_t{2} * data.context_pad() >= transform.crop_size()) {
    input.Fail("window_data_param.context_pad", "context_pad is " +
                                                    std::to_string(data.context_pad()) +
                                                    "; expected less than half of crop_size, " +
                                                    std::to_string(transform.crop_size()));
  }
  if (data.crop_mode() != "warp" && data.crop_mode() != "square") {
    input.Fail("window_data_param.crop_mode",
               "crop_mode is \"" + data.crop_mode() + "\"; expected \"warp\" or \"square\"");
  }
  if (!(data.fg_fraction() >= 0 && data.fg_fraction() <= 1)) {
    input.Fail("window_data_param.fg_fraction", "fg_fraction must be from 0 to 1");
  }
  return SampleTops(input, data.batch_size());
}

LayerShapes InferMemoryData(const LayerInput& input) {
  const caffe::MemoryDataParameter& data = input.layer.memory_data_param();
  const Shape image = {input.options.batch_size.value_or(data.batch_size()), data.channels(),
                       data.height(), data.width()};
  if (Count(image) == 0) {
    input.Fail("memory_data_param",
               "batch_size, channels, height and width must all be at least 1; they are " +
                   ToString(image));
  }
  return {{image, {image[0]}}, {}};
}

LayerShapes InferInput(const LayerInput& input) {
  const caffe::InputParameter& parameter = input.layer.input_param();
  CheckGivenForTops(input, "input_param.shape", parameter.shape_size());
  std::vector<Shape> shapes;
  for (int i = 0; i < input.layer.top_size(); ++i) {
    shapes.push_back(ToShape(ForTop(parameter.shape(), i)));
  }
  return WithBatchSize(input, std::move(shapes));
}

LayerShapes InferDummyData(const LayerInput& input) {
  const caffe::DummyDataParameter& parameter = input.layer.dummy_data_param();
  if (parameter.data_filler_size() > 0) {
    CheckGivenForTops(input, "dummy_data_param.data_filler", parameter.data_filler_size());
  }
  if (parameter.num_size() + parameter.channels_size() + parameter.height_size() +
          parameter.width_size() >
      0) {
    return WithBatchSize(input, OldDummyShapes(input));
  }
  CheckGivenForTops(input, "dummy_data_param.shape", parameter.shape_size());
  std::vector<Shape> shapes;
  for (int i = 0; i < input.layer.top_size(); ++i) {
    shapes.push_back(ToShape(ForTop(parameter.shape(), i)));
  }
  return WithBatchSize(input, std::move(shapes));
}

}  // namespace poseidon
