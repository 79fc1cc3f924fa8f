#include "caffe_adapter/data/transform.h"

#include <glog/logging.h>

#include "caffe_adapter/files/caffemodel.h"
#include "core/random.h"

namespace poseidon {

Shape TransformedShape(const caffe::TransformationParameter& parameter, const Shape& record_shape,
                       const Location& where) {
  const int64_t crop = parameter.crop_size();
  if (crop == 0) return record_shape;
  if (crop > record_shape[1] || crop > record_shape[2]) {
    throw ConfigError(where, "crop_size is " + std::to_string(crop) +
                                 ", larger than the records, " + ToString(record_shape));
  }
  return {record_shape[0], crop, crop};
}

ImageChannels ChannelsOf(const caffe::TransformationParameter& parameter, const Location& where) {
  if (parameter.force_color() && parameter.force_gray()) {
    throw ConfigError(where, "give force_color or force_gray, not both");
  }
  if (parameter.force_color()) return ImageChannels::kColor;
  return parameter.force_gray() ? ImageChannels::kGray : ImageChannels::kAsStored;
}

Transformer::Transformer(const caffe::TransformationParameter& parameter, caffe::Phase phase,
                         const Shape& record_shape, const Location& where)
    : parameter_(parameter),
      phase_(phase),
      record_shape_(record_shape),
      output_shape_(TransformedShape(parameter, record_shape, where)) {
  SetMean(where);
}

void Transformer::SetMean(const Location& where) {
  const int values = parameter_.mean_value_size();
  if (parameter_.has_mean_file()) {
    if (values > 0) throw ConfigError(where, "give mean_file or mean_value, not both");
    caffe::BlobProto blob;
    ReadBinaryFile(parameter_.mean_file(), blob);
    Shape shape = BlobProtoShape(blob);
    if (shape.size() == 4 && shape[0] == 1) shape.erase(shape.begin());
    if (shape != record_shape_) {
      throw ConfigError(where, "the mean image " + parameter_.mean_file() + " is " +
                                   ToString(shape) + ", but the records are " +
                                   ToString(record_shape_));
    }
    mean_image_ = ToValues(blob);
  } else if (values > 0) {
    if (values != 1 && values != record_shape_[0]) {
      throw ConfigError(where, "there are " + std::to_string(values) +
                                   " mean_value entries; expected 1 or one for each of " +
                                   std::to_string(record_shape_[0]) + " channels");
    }
    for (int channel = 0; channel < record_shape_[0]; ++channel) {
      channel_means_.push_back(parameter_.mean_value(values == 1 ? 0 : channel));
    }
  }
}

std::string Transformer::ShapeError(const Shape& shape) const {
  if (shape == record_shape_) return "";
  const std::string found = "is " + ToString(shape) + ", but the first record ";
  if (parameter_.crop_size() == 0 || !mean_image_.empty()) return found + ToString(record_shape_);
  if (shape[0] != record_shape_[0]) {
    return found + "has " + std::to_string(record_shape_[0]) + " channels";
  }
  if (shape[1] < output_shape_[1] || shape[2] < output_shape_[2]) {
    return "is " + ToString(shape) + ", smaller than crop_size, " +
           std::to_string(parameter_.crop_size());
  }
  return "";
}

void Transformer::Apply(const caffe::Datum& datum, uint64_t seed, std::span<float> out) const {
  const Shape shape = {datum.channels(), datum.height(), datum.width()};
  if (datum.data().empty()) {
    CHECK_EQ(datum.float_data_size(), Count(shape));
    Apply(datum.float_data().data(), shape, seed, out);
  } else {
    CHECK_EQ(static_cast<int64_t>(datum.data().size()), Count(shape));
    Apply(reinterpret_cast<const uint8_t*>(datum.data().data()), shape, seed, out);
  }
}

void Transformer::Apply(const ByteImage& image, uint64_t seed, std::span<float> out) const {
  Apply(reinterpret_cast<const uint8_t*>(image.bytes.data()), image.shape, seed, out);
}

template <typename Value>
void Transformer::Apply(const Value* values, const Shape& shape, uint64_t seed,
                        std::span<float> out) const {
  CHECK_EQ(static_cast<int64_t>(out.size()), Count(output_shape_));
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  const int64_t out_height = output_shape_[1];
  const int64_t out_width = output_shape_[2];
  Random random(seed);
  const bool mirror = parameter_.mirror() && random.Below(2) == 1;
  int64_t top = (height - out_height) / 2;
  int64_t left = (width - out_width) / 2;
  if (phase_ == caffe::TRAIN) {
    top = static_cast<int64_t>(random.Below(height - out_height + 1));
    left = static_cast<int64_t>(random.Below(width - out_width + 1));
  }
  const float scale = parameter_.scale();
  float* written = out.data();
  for (int64_t channel = 0; channel < shape[0]; ++channel) {
    const float channel_mean = channel_means_.empty() ? 0 : channel_means_[channel];
    for (int64_t y = 0; y < out_height; ++y) {
      const int64_t row = (channel * height + top + y) * width + left;
      for (int64_t x = 0; x < out_width; ++x) {
        const int64_t i = row + (mirror ? out_width - 1 - x : x);
        const float mean = mean_image_.empty() ? channel_mean : mean_image_[i];
        *written++ = (static_cast<float>(values[i]) - mean) * scale;
      }
    }
  }
}

}  // namespace poseidon
