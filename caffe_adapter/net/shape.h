// Shapes of blobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace poseidon {

// Extents of a blob, outermost first: (num, channels, height, width) for images. Empty: a scalar.
using Shape = std::vector<int64_t>;

// The product of the extents from axis `begin` to before `end`; 1 when there are none.
int64_t Count(const Shape& shape, int begin, int end);
int64_t Count(const Shape& shape);

// The same of a shape from a file, where extents may be anything: nullopt if one is negative or the
// product is beyond what a blob of Caffe's can have, 2^31 - 1.
std::optional<int64_t> CheckedCount(const Shape& shape);

// "64 x 1 x 28 x 28"; "scalar" for an empty shape.
std::string ToString(const Shape& shape);

}  // namespace poseidon
