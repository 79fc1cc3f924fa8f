// What is said where a training's numbers are no longer finite.
#pragma once

#include <cstdint>
#include <string>

namespace poseidon {

// Throws Error that names worker, iteration and, unless it is empty, `layer`: the first with such
// numbers (worker/engine/engine.h). Thread-safe.
[[noreturn]] void ThrowLossNotFinite(int rank, int64_t iteration, float loss,
                                     const std::string& layer);

}  // namespace poseidon
