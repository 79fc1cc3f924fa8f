// Sums of float32 vectors straight from received frames.
//
// Pure functions: any thread may call them on buffers that no other thread touches meanwhile. A
// frame of the wrong length is the caller's bug (lengths from the network are checked where the
// frame's header is read) and ends the program.
#pragma once

#include <cstddef>
#include <span>

namespace poseidon {

// accumulator[i] += addend[i]. `addend` holds accumulator.size() floats in host byte order at any
// alignment: a frame as it was received. The two must not overlap. One float32 addition an element,
// so the bits do not depend on how a vector is cut or on what the machine can vectorize.
void AddInto(std::span<float> accumulator, std::span<const std::byte> addend);

// destination[i] = source[i], from a frame at any alignment. The two must not overlap.
void CopyFrom(std::span<float> destination, std::span<const std::byte> source);

}  // namespace poseidon
