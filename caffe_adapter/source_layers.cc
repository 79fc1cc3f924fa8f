// Shapes of layers without bottoms.
#include "caffe_adapter/dataset.h"
#include "caffe_adapter/layer_types.h"
#include "caffe_adapter/transform.h"

namespace poseidon {
namespace {

Shape ToShape(const caffe::BlobShape& shape) { return {shape.dim().begin(), shape.dim().end()}; }

// Caffe's older place for transform_param's fields and what has no meaning here: refused rather
// than passed over.
void CheckDataParameter(const LayerInput& input) {
  const caffe::DataParameter& data = input.layer.data_param();
  if (data.has_scale() || data.has_mean_file() || data.has_crop_size() || data.has_mirror()) {
    input.Fail(
        "data_param",
        "scale, mean_file, crop_size and mirror belong into transform_param, not data_param");
  }
  if (data.backend() != caffe::DataParameter::LMDB) {
    input.Fail(data.has_backend() ? "data_param.backend" : "data_param",
               "backend is LEVELDB (Caffe's default); only LMDB is supported");
  }
  if (data.rand_skip() != 0) {
    input.Fail("data_param.rand_skip",
               "rand_skip is not supported; records can be shuffled instead");
  }
  if (data.force_encoded_color()) {
    input.Fail("data_param.force_encoded_color", "encoded images are not supported");
  }
  if (data.source().empty())
    input.Fail("data_param", "data_param.source, the database, is missing");
  if (data.batch_size() == 0 && !input.options.batch_size) {
    input.Fail(data.has_batch_size() ? "data_param.batch_size" : "data_param",
               "batch_size must be at least 1");
  }
}

}  // namespace

LayerShapes InferData(const LayerInput& input) {
  CheckDataParameter(input);
  const caffe::DataParameter& data = input.layer.data_param();
  const Shape record = input.options.record_shape ? *input.options.record_shape
                                                  : Dataset(data.source()).record_shape();
  const Shape image = TransformedShape(input.layer.transform_param(), record,
                                       input.options.locate(input.path + ".transform_param"));
  const int64_t batch = input.options.batch_size.value_or(data.batch_size());
  LayerShapes shapes{{{batch, image[0], image[1], image[2]}}, {}};
  if (input.layer.top_size() == 2) shapes.tops.push_back({batch});
  return shapes;
}

LayerShapes InferInput(const LayerInput& input) {
  const caffe::InputParameter& parameter = input.layer.input_param();
  const int given = parameter.shape_size();
  if (given != 1 && given != input.layer.top_size()) {
    input.Fail(given == 0 ? "" : "input_param", "input_param has " + std::to_string(given) +
                                                    " shapes; expected 1 or one for each of " +
                                                    std::to_string(input.layer.top_size()) +
                                                    " tops");
  }
  LayerShapes shapes;
  for (int i = 0; i < input.layer.top_size(); ++i) {
    Shape shape = ToShape(parameter.shape(given == 1 ? 0 : i));
    if (input.options.batch_size && !shape.empty()) shape[0] = *input.options.batch_size;
    shapes.tops.push_back(shape);
  }
  return shapes;
}

LayerShapes InferDummyData(const LayerInput& input) {
  const caffe::DummyDataParameter& parameter = input.layer.dummy_data_param();
  if (parameter.num_size() + parameter.channels_size() + parameter.height_size() +
          parameter.width_size() >
      0) {
    input.Fail("dummy_data_param", "num, channels, height, width are the old form; write shape");
  }
  const int tops = input.layer.top_size();
  const int given = parameter.shape_size();
  if (given != 1 && given != tops) {
    input.Fail(given == 0 ? "" : "dummy_data_param",
               "dummy_data_param has " + std::to_string(given) +
                   " shapes; expected 1 or one for each of " + std::to_string(tops) + " tops");
  }
  const int fillers = parameter.data_filler_size();
  if (fillers > 1 && fillers != tops) {
    input.Fail("dummy_data_param", "dummy_data_param has " + std::to_string(fillers) +
                                       " fillers; expected 0, 1 or one for each of " +
                                       std::to_string(tops) + " tops");
  }
  LayerShapes shapes;
  for (int i = 0; i < tops; ++i) {
    Shape shape = ToShape(parameter.shape(given == 1 ? 0 : i));
    if (input.options.batch_size && !shape.empty()) shape[0] = *input.options.batch_size;
    shapes.tops.push_back(shape);
  }
  return shapes;
}

}  // namespace poseidon
