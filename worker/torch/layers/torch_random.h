// Random numbers of layers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace poseidon {

// A generator on the device of `like` that starts from `seed` and the iteration: a layer draws the
// same numbers whenever it computes an iteration.
at::Generator MakeGenerator(const at::Tensor& like, uint64_t seed, int64_t iteration);

}  // namespace poseidon
