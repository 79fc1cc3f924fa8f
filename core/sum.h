// Sums of float32 vectors straight from received frames.
#pragma once

#include <cstddef>
#include <span>

namespace poseidon {

// accumulator[i] += addend[i]. `addend` holds accumulator.size() floats in host byte order at any
// alignment: a frame as it was received. The two must not overlap. Vectorised; no state.
void AddInto(std::span<float> accumulator, std::span<const std::byte> addend);

// destination[i] = source[i], from a frame at any alignment.
void CopyFrom(std::span<float> destination, std::span<const std::byte> source);

}  // namespace poseidon
