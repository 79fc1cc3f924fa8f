// What stands for a figure that no node has told yet, in reports and in what a monitor shows.
#pragma once

#include <limits>

namespace poseidon {

inline constexpr double kUnknownValue = std::numeric_limits<double>::quiet_NaN();

}  // namespace poseidon
