#include "caffe_adapter/transform.h"

#include <glog/logging.h>

#include "caffe_adapter/caffemodel.h"
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

Transformer::Transformer(const caffe::TransformationParameter& parameter, caffe::Phase phase,
                         const Shape& record_shape, const Location& where)
    : parameter_(parameter),
      phase_(phase),
      record_shape_(record_shape),
      output_shape_(TransformedShape(parameter, record_shape, where)) {
  if (parameter_.force_color() || parameter_.force_gray()) {
    throw ConfigError(where,
                      "force_color and force_gray are for encoded images, which are not "
                      "supported");
  }
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
    mean_ = ToValues(blob);
  } else if (values > 0) {
    if (values != 1 && values != record_shape_[0]) {
      throw ConfigError(where, "there are " + std::to_string(values) +
                                   " mean_value entries; expected 1 or one for each of " +
                                   std::to_string(record_shape_[0]) + " channels");
    }
    for (int channel = 0; channel < record_shape_[0]; ++channel) {
      const float mean = parameter_.mean_value(values == 1 ? 0 : channel);
      mean_.insert(mean_.end(), record_shape_[1] * record_shape_[2], mean);
    }
  }
}

void Transformer::Apply(const caffe::Datum& datum, uint64_t seed, std::span<float> out) const {
  CHECK_EQ(static_cast<int64_t>(out.size()), Count(output_shape_));
  CHECK_EQ(static_cast<int64_t>(datum.data().size()) + datum.float_data_size(),
           Count(record_shape_));
  const int64_t height = record_shape_[1];
  const int64_t width = record_shape_[2];
  const int64_t crop_height = output_shape_[1];
  const int64_t crop_width = output_shape_[2];
  int64_t top = (height - crop_height) / 2;
  int64_t left = (width - crop_width) / 2;
  bool mirror = false;
  if (phase_ == caffe::TRAIN) {
    Random random(seed);
    mirror = parameter_.mirror() && random.Below(2) == 1;
    top = static_cast<int64_t>(random.Below(height - crop_height + 1));
    left = static_cast<int64_t>(random.Below(width - crop_width + 1));
  }
  const std::string& bytes = datum.data();
  const float scale = parameter_.scale();
  size_t written = 0;
  for (int64_t channel = 0; channel < record_shape_[0]; ++channel) {
    for (int64_t y = 0; y < crop_height; ++y) {
      const int64_t row = (channel * height + top + y) * width + left;
      for (int64_t x = 0; x < crop_width; ++x) {
        const int64_t i = row + (mirror ? crop_width - 1 - x : x);
        const float value = bytes.empty() ? datum.float_data(static_cast<int>(i))
                                          : static_cast<float>(static_cast<uint8_t>(bytes[i]));
        out[written++] = (value - (mean_.empty() ? 0 : mean_[i])) * scale;
      }
    }
  }
}

}  // namespace poseidon
