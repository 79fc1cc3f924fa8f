// The median of a sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace poseidon {

// Of an even number of values the upper one of the middle two. There is at least one value.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace poseidon
