// The library that has OpenCV in it (image_library.h).
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <vector>

#include "caffe_adapter/data/image_library.h"
#include "core/error.h"

namespace poseidon {
namespace {

uint8_t ByteAt(std::string_view file, size_t at) { return static_cast<uint8_t>(file[at]); }

// The second byte of the next marker of a JPEG that is no part of a scan's data: there 0xff is
// followed by 0, or by 0xd0 to 0xd7 between two intervals. The file's size if there is none.
size_t FindJpegMarker(std::string_view file, size_t from) {
  for (size_t at = from; at + 1 < file.size(); ++at) {
    const uint8_t next = ByteAt(file, at + 1);
    const bool is_data = next == 0 || next == 0xff || (next >= 0xd0 && next <= 0xd7);
    if (ByteAt(file, at) == 0xff && !is_data) return at + 1;
  }
  return file.size();
}

// A JPEG is a row of segments up to an EOI marker; each begins with a marker and its length, and
// after some come a scan's data. Cameras put small pictures into a segment and films behind the
// end. Decoders fill what is missing of a truncated one with gray and say nothing.
bool IsTruncatedJpeg(std::string_view file) {
  if (!file.starts_with("\xff\xd8")) return false;
  constexpr uint8_t kEnd = 0xd9;
  size_t at = FindJpegMarker(file, 2);
  while (at + 2 < file.size() && ByteAt(file, at) != kEnd) {
    const size_t length = (size_t{ByteAt(file, at + 1)} << 8U) + ByteAt(file, at + 2);
    at = FindJpegMarker(file, at + 1 + length);
  }
  return at >= file.size() || ByteAt(file, at) != kEnd;
}

// Decoders differ in whether they refuse a PNG whose end is missing.
bool IsTruncatedPng(std::string_view file) {
  return file.starts_with("\x89PNG") && file.rfind("IEND") == std::string_view::npos;
}

int ReadFlag(ImageChannels channels) {
  switch (channels) {
    case ImageChannels::kColor:
      return cv::IMREAD_COLOR;
    case ImageChannels::kGray:
      return cv::IMREAD_GRAYSCALE;
    case ImageChannels::kAsStored:
      break;
  }
  return cv::IMREAD_UNCHANGED;
}

// Workers have their own threads; OpenCV's would compete with them.
void UseOneThread() {
  static const bool once = [] {
    cv::setNumThreads(1);
    return true;
  }();
  static_cast<void>(once);
}

cv::Mat Decode(std::string_view file, ImageChannels channels, const std::string& name) {
  UseOneThread();
  if (IsTruncatedJpeg(file) || IsTruncatedPng(file)) {
    throw DataError(name + ": the image is truncated; copy or make it anew");
  }
  cv::Mat image;
  std::string reason;
  try {
    if (!file.empty()) {
      const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8UC1,
                          const_cast<char*>(file.data()));  // only read
      image = cv::imdecode(bytes, ReadFlag(channels));
    }
  } catch (const cv::Exception& error) {
    reason = ": " + std::string(error.err);
  }
  if (image.empty()) {
    throw DataError(name + ": is no image that OpenCV can read, or a corrupt one" + reason);
  }
  if (image.depth() != CV_8U) {
    throw DataError(name + ": has more than 8 bits a value; expected an image of bytes");
  }
  return image;
}

ByteImage ToByteImage(const cv::Mat& image) {
  ByteImage result{{image.channels(), image.rows, image.cols}, {}};
  const size_t plane = static_cast<size_t>(image.rows) * image.cols;
  const int channels = image.channels();
  result.bytes.resize(channels * plane);
  size_t pixel = 0;
  for (int y = 0; y < image.rows; ++y) {
    const uint8_t* row = image.ptr<uint8_t>(y);
    for (int x = 0; x < image.cols; ++x, ++pixel) {
      for (int c = 0; c < channels; ++c) {
        result.bytes[c * plane + pixel] = static_cast<char>(*row++);
      }
    }
  }
  return result;
}

cv::Mat ToMat(const ByteImage& image, const ImageRegion& region) {
  const auto channels = static_cast<int>(image.shape[0]);
  cv::Mat mat(static_cast<int>(region.height), static_cast<int>(region.width), CV_8UC(channels));
  const int64_t plane = image.shape[1] * image.shape[2];
  for (int y = 0; y < mat.rows; ++y) {
    uint8_t* row = mat.ptr<uint8_t>(y);
    int64_t pixel = (region.top + y) * image.shape[2] + region.left;
    for (int x = 0; x < mat.cols; ++x, ++pixel) {
      for (int c = 0; c < channels; ++c) {
        *row++ = static_cast<uint8_t>(image.bytes[c * plane + pixel]);
      }
    }
  }
  return mat;
}

cv::Mat Resize(const cv::Mat& image, int64_t height, int64_t width) {
  cv::Mat resized;
  cv::resize(image, resized, cv::Size(static_cast<int>(width), static_cast<int>(height)));
  return resized;
}

ByteImage DecodeResized(std::string_view file, ImageChannels channels, int64_t height,
                        int64_t width, const std::string& name) {
  cv::Mat image = Decode(file, channels, name);
  if (height > 0 && width > 0) image = Resize(image, height, width);
  return ToByteImage(image);
}

ByteImage ResizePart(const ByteImage& image, const ImageRegion& region, int64_t height,
                     int64_t width) {
  return ToByteImage(Resize(ToMat(image, region), height, width));
}

std::string Encode(const ByteImage& image, const std::string& type) {
  UseOneThread();
  std::vector<uint8_t> bytes;
  try {
    const cv::Mat mat = ToMat(image, {0, 0, image.shape[1], image.shape[2]});
    if (cv::imencode("." + type, mat, bytes)) return {bytes.begin(), bytes.end()};
  } catch (const cv::Exception&) {  // an unknown type
  }
  throw DataError("can't encode an image as \"" + type + "\"; jpg and png always can be");
}

}  // namespace
}  // namespace poseidon

extern "C" __attribute__((visibility("default"))) poseidon::ImageLibrary poseidon_image_library() {
  return {poseidon::DecodeResized, poseidon::ResizePart, poseidon::Encode};
}
