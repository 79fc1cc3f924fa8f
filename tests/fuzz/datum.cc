// A record of a database, up to the floats that a net reads. What is compressed in one is OpenCV's
// to decode.
#include "caffe_adapter/data/dataset.h"
#include "caffe_adapter/data/transform.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  poseidon::caffe::Datum datum;
  if (!datum.ParseFromArray(data, static_cast<int>(size))) return 0;
  if (!poseidon::DatumError(datum).empty() || datum.encoded()) return 0;
  poseidon::caffe::TransformationParameter parameter;
  parameter.set_crop_size(2);
  parameter.set_mirror(true);
  const poseidon::Shape shape = {datum.channels(), datum.height(), datum.width()};
  poseidon::ReadOrRefuse([&] {
    const poseidon::Transformer transformer(parameter, poseidon::caffe::TRAIN, shape);
    std::vector<float> out(static_cast<size_t>(poseidon::Count(transformer.output_shape())));
    transformer.Apply(datum, size, out);
  });
  return 0;
}
