// What is said where a training's numbers are no longer finite.
#pragma once

#include <cstdint>
#include <string>

namespace poseidon {

// Throws Error that names worker, iteration and, unless it is empty, `layer`: the first with such
// numbers (worker/engine/engine.h). It ends with `advice`. Thread-safe.
[[noreturn]] void ThrowLossNotFinite(int rank, int64_t iteration, float loss,
                                     const std::string& layer, const std::string& advice);

}  // namespace poseidon
