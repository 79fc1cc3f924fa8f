// Images of one channel, for conversion.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poseidon {

struct Image {
  int64_t height;
  int64_t width;
  std::vector<float> pixels;  // row by row
};

// Bilinear interpolation with pixel centers at half coordinates and the border repeated, as most
// image libraries scale up. Scaling down takes samples; it does not average.
Image ScaleBilinear(const Image& image, int64_t height, int64_t width);

// A byte a pixel: its value times `factor`, rounded and limited to 0..255.
std::string ToBytes(const Image& image, double factor);

}  // namespace poseidon
