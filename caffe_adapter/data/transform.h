// Caffe's transform_param: from pixels to the floats that a net reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/net/shape.h"
#include "core/error.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// out = (value - mean) * scale, cropped to crop_size x crop_size and mirrored left to right. In
// TRAIN the crop's place is random, in TEST it is central; with `mirror`, whether to mirror is
// random in both, as in Caffe. What is random depends on the sample's seed alone.
//
// Immutable: any number of threads may use one.
class Transformer {
 public:
  // Reads mean_file. `record_shape` is the first record's channels, height and width. Throws
  // ConfigError if parameter and record do not fit, DataError if the mean file can't be read;
  // `where` is the transform_param's place.
  Transformer(const caffe::TransformationParameter& parameter, caffe::Phase phase,
              const Shape& record_shape, const Location& where = {});

  // Channels, height and width of the output.
  const Shape& output_shape() const { return output_shape_; }

  // Why a record of this shape can't be transformed, or "". Cropped records may differ in height
  // and width, unless there is a mean file.
  std::string ShapeError(const Shape& shape) const;

  // Transforms a record without ShapeError into Count(output_shape()) floats. `seed` decides crop
  // and mirror: give each sample its own (DeriveSeed(seed, position)), and a sample does not depend
  // on the worker that reads it. A datum is not encoded and has as many values as its shape says.
  void Apply(const caffe::Datum& datum, uint64_t seed, std::span<float> out) const;
  void Apply(const ByteImage& image, uint64_t seed, std::span<float> out) const;

 private:
  void SetMean(const Location& where);
  // From `values`, of uint8_t or float.
  template <typename Value>
  void Apply(const Value* values, const Shape& shape, uint64_t seed, std::span<float> out) const;

  caffe::TransformationParameter parameter_;
  caffe::Phase phase_;
  Shape record_shape_;
  Shape output_shape_;
  std::vector<float> mean_image_;     // one a value of a record, or none
  std::vector<float> channel_means_;  // one a channel, or none
};

// The shape that Transformer has for records of `record_shape`: the crop, if there is one. Throws
// ConfigError if the crop is larger than the record.
Shape TransformedShape(const caffe::TransformationParameter& parameter, const Shape& record_shape,
                       const Location& where = {});

// What force_color and force_gray make of compressed images. Throws ConfigError for both at once.
ImageChannels ChannelsOf(const caffe::TransformationParameter& parameter,
                         const Location& where = {});

}  // namespace poseidon
