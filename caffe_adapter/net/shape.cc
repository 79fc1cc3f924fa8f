#include "caffe_adapter/net/shape.h"

#include <limits>

namespace poseidon {

int64_t Count(const Shape& shape, int begin, int end) {
  int64_t count = 1;
  for (int axis = begin; axis < end; ++axis) count *= shape[axis];
  return count;
}

int64_t Count(const Shape& shape) { return Count(shape, 0, static_cast<int>(shape.size())); }

std::optional<int64_t> CheckedCount(const Shape& shape) {
  constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > kMaxCount / extent)) return std::nullopt;
    count *= extent;
  }
  return count;
}

std::string ToString(const Shape& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace poseidon
