#include "caffe_adapter/shape.h"

namespace poseidon {

int64_t Count(const Shape& shape, int begin, int end) {
  int64_t count = 1;
  for (int axis = begin; axis < end; ++axis) count *= shape[axis];
  return count;
}

int64_t Count(const Shape& shape) { return Count(shape, 0, static_cast<int>(shape.size())); }

std::string ToString(const Shape& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace poseidon
