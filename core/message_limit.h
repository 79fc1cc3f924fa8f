// How long a message between nodes may be.
#pragma once

#include <cstdint>

namespace poseidon {

// A message whose body is longer ends its connection. A KV pair is at most half as long, or less if
// its optimizer state would be longer, and a layer whose factors would be longer sends none.
inline constexpr int64_t kMostBodyBytes = int64_t{1} << 30;

}  // namespace poseidon
