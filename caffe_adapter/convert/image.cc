#include "caffe_adapter/convert/image.h"

#include <algorithm>
#include <cmath>

namespace poseidon {
namespace {

// Which two of `from` pixels a pixel of `to` lies between, and how near the second.
struct Between {
  int64_t first;
  int64_t second;
  float weight;  // of the second
};

Between Locate(int64_t pixel, int64_t from, int64_t to) {
  const double ratio = static_cast<double>(from) / static_cast<double>(to);
  const double center = (static_cast<double>(pixel) + 0.5) * ratio - 0.5;
  const double inside = std::clamp(center, 0.0, static_cast<double>(from - 1));
  const auto first = static_cast<int64_t>(inside);
  return {first, std::min(first + 1, from - 1), static_cast<float>(inside - std::floor(inside))};
}

}  // namespace

Image ScaleBilinear(const Image& image, int64_t height, int64_t width) {
  Image scaled{height, width, {}};
  scaled.pixels.reserve(static_cast<size_t>(height * width));
  for (int64_t y = 0; y < height; ++y) {
    const Between rows = Locate(y, image.height, height);
    for (int64_t x = 0; x < width; ++x) {
      const Between columns = Locate(x, image.width, width);
      const auto in_row = [&](int64_t row) {
        const float* pixels = &image.pixels[row * image.width];
        return std::lerp(pixels[columns.first], pixels[columns.second], columns.weight);
      };
      scaled.pixels.push_back(std::lerp(in_row(rows.first), in_row(rows.second), rows.weight));
    }
  }
  return scaled;
}

std::string ToBytes(const Image& image, double factor) {
  std::string bytes;
  bytes.reserve(image.pixels.size());
  for (const float pixel : image.pixels) {
    bytes.push_back(
        static_cast<char>(static_cast<uint8_t>(std::clamp(std::lround(pixel * factor), 0L, 255L))));
  }
  return bytes;
}

}  // namespace poseidon
