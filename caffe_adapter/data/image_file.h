// Image files: JPEG, PNG and whatever else OpenCV reads, as in Caffe.
//
// Everything here needs OpenCV, which the first call loads (image_library.h). In a build without it
// (CMake says so) functions throw DataError with that reason. Any number of threads may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "caffe_adapter/net/shape.h"

namespace poseidon {

// Bytes in channel, row, column order; colors are blue, green, red, as Caffe has them.
struct ByteImage {
  Shape shape;  // channels, height, width
  std::string bytes;
};

// What a file becomes: as many channels as it has, or three, or one.
enum class ImageChannels { kAsStored, kColor, kGray };

// Whether this build can read image files.
bool HasImageFiles();

// The image in the bytes of a file; `name` is what errors call it. Throws DataError for bytes that
// are no image, or one that is truncated or has more than 8 bits a value.
ByteImage DecodeImage(std::string_view file, ImageChannels channels, const std::string& name);

// Reads a file and, unless they are 0, resizes to height and width by OpenCV's bilinear
// interpolation, as Caffe does. Throws DataError.
ByteImage ReadImageFile(const std::string& path, ImageChannels channels, int64_t height,
                        int64_t width);

// A part of an image, in pixels.
struct ImageRegion {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

// A region that lies in the image, resized by OpenCV's bilinear interpolation. Nothing that is
// asked for is empty.
ByteImage ResizeRegion(const ByteImage& image, const ImageRegion& region, int64_t height,
                       int64_t width);

// The bytes of an image file of a type: "jpg", "png", ... Throws DataError for an unknown one.
std::string EncodeImage(const ByteImage& image, const std::string& type);

}  // namespace poseidon
