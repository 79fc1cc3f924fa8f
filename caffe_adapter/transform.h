// Caffe's transform_param: from a Datum to the floats that a net reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "caffe_adapter/shape.h"
#include "core/error.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// out = (value - mean) * scale, cropped to crop_size x crop_size and mirrored left to right. In
// TRAIN the crop's place is random and, with `mirror`, so is whether to mirror. In TEST the crop is
// central and nothing is mirrored, so that a test gives the same result each time. (Caffe mirrors
// at random in TEST, too, when `mirror` is written there.)
//
// Immutable: any number of threads may use one.
class Transformer {
 public:
  // Reads mean_file. `record_shape` is the records' channels, height and width. Throws ConfigError
  // if parameter and records do not fit, DataError if the mean file can't be read; `where` is the
  // transform_param's place.
  Transformer(const caffe::TransformationParameter& parameter, caffe::Phase phase,
              const Shape& record_shape, const Location& where = {});

  // Channels, height and width of the output.
  const Shape& output_shape() const { return output_shape_; }

  // Transforms a record of the shape given into Count(output_shape()) floats. `seed` decides crop
  // and mirror: give each sample its own (DeriveSeed(seed, position)), and a sample does not depend
  // on the worker that reads it.
  void Apply(const caffe::Datum& datum, uint64_t seed, std::span<float> out) const;

 private:
  void SetMean(const Location& where);

  caffe::TransformationParameter parameter_;
  caffe::Phase phase_;
  Shape record_shape_;
  Shape output_shape_;
  std::vector<float> mean_;  // one a value of a record, or none
};

// The shape that Transformer has for records of `record_shape`: the crop, if there is one. Throws
// ConfigError if the crop is larger than the record.
Shape TransformedShape(const caffe::TransformationParameter& parameter, const Shape& record_shape,
                       const Location& where = {});

}  // namespace poseidon
