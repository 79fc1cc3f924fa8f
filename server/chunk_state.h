// What a server keeps of a chunk, or kept before its last update. A view.
#pragma once

#include <span>

namespace poseidon {

// Empty for phantoms.
struct ChunkState {
  std::span<const float> values;
  std::span<const float> optimizer_state;
};

}  // namespace poseidon
