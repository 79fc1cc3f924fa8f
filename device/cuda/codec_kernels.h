// What device/cuda/codec.cu picks from. For device/cuda/codec*.cu only.
#pragma once

#include <cstddef>
#include <span>

#include "device/cuda/codec.h"

namespace poseidon::cuda {

// Sizes fit each other and none is 0. An empty residual stands for zeros that nobody wants back.
void EncodeOneBit(std::span<const float> values, std::span<float> residual,
                  std::span<std::byte> out, CudaStream stream);
void EncodeInt8(std::span<const float> values, std::span<float> residual, std::span<std::byte> out,
                CudaStream stream);
void EncodeTopK(std::span<const Packing> packings, CodecScratch& scratch, CudaStream stream);

// How a decoded float meets the one in its place.
enum class Meeting { kAssign, kAdd };
void ApplyOneBit(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
                 CudaStream stream);
void ApplyInt8(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
               CudaStream stream);
void ApplyTopK(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
               CudaStream stream);

}  // namespace poseidon::cuda
