#include "caffe_adapter/data/mean_image.h"

#include <glog/logging.h>

#include <numeric>

#include "caffe_adapter/files/caffemodel.h"

namespace poseidon {

void MeanImage::Add(const caffe::Datum& datum) {
  const std::string& bytes = datum.data();
  CHECK_EQ(bytes.size() + datum.float_data_size(), sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += bytes.empty() ? static_cast<double>(datum.float_data(static_cast<int>(i)))
                              : static_cast<uint8_t>(bytes[i]);
  }
  ++images_;
}

void MeanImage::Write(const std::string& path) const { Prepare(path).Place(); }

PreparedFile MeanImage::Prepare(const std::string& path) const {
  CHECK_GT(images_, 0);
  caffe::BlobProto blob;
  blob.set_num(1);
  blob.set_channels(static_cast<int>(shape_[0]));
  blob.set_height(static_cast<int>(shape_[1]));
  blob.set_width(static_cast<int>(shape_[2]));
  for (const double sum : sums_) {
    blob.add_data(static_cast<float>(sum / static_cast<double>(images_)));
  }
  return PrepareBinaryFile(path, blob);
}

std::vector<double> MeanImage::ChannelMeans() const {
  std::vector<double> means;
  const int64_t plane = shape_[1] * shape_[2];
  for (auto begin = sums_.begin(); begin != sums_.end(); begin += plane) {
    means.push_back(std::accumulate(begin, begin + plane, 0.0) /
                    static_cast<double>(plane * images_));
  }
  return means;
}

}  // namespace poseidon
