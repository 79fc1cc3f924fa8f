// The library that image files are read and written with. It is loaded for the first of them:
// OpenCV brings 120 others, which take a tenth of a second, and most programs never read an image.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "caffe_adapter/data/image_file.h"

namespace poseidon {

// What the library has; errors as image_file.h says.
struct ImageLibrary {
  // Resized, unless height or width is 0.
  ByteImage (*decode)(std::string_view file, ImageChannels channels, int64_t height, int64_t width,
                      const std::string& name);
  ByteImage (*resize_region)(const ByteImage& image, const ImageRegion& region, int64_t height,
                             int64_t width);
  std::string (*encode)(const ByteImage& image, const std::string& type);
};

// By a name without C++'s ornaments.
using ImageLibraryFunction = ImageLibrary();
inline constexpr char kImageLibraryName[] = "poseidon_image_library";
inline constexpr char kImageLibraryFile[] = "libposeidon_images.so";

}  // namespace poseidon
