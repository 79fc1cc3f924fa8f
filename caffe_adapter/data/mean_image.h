// The mean of many images.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "core/atomic_file.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Sums images to their mean; exact for up to 2^45 images of bytes. One thread at a time.
class MeanImage {
 public:
  // Channels, height and width of each image.
  explicit MeanImage(const Shape& shape) : shape_(shape), sums_(Count(shape)) {}

  // A record that is not encoded and has as many values as the shape says.
  void Add(const caffe::Datum& datum);

  // As Caffe's compute_image_mean writes it, with num 1 before the image's axes. At least one image
  // was added. Throws Error.
  void Write(const std::string& path) const;
  // The same under a temporary name, to be placed.
  PreparedFile Prepare(const std::string& path) const;

  // The mean over each channel's pixels: values for mean_value.
  std::vector<double> ChannelMeans() const;

 private:
  Shape shape_;
  std::vector<double> sums_;
  int64_t images_ = 0;
};

}  // namespace poseidon
