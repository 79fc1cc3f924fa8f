// core/arithmetic/codec.h on a CUDA device: the same bytes on the wire, and the same residuals, bit
// for bit (a NaN stays a NaN, but its payload may differ).
//
// All vectors are in device memory; encoded ones begin at a multiple of 4 bytes. Work is put in
// `stream` and done when that gets to it. Any thread may call. Throws Error if CUDA refuses a
// launch. Sizes that don't belong together are the caller's bug and end the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/arithmetic/codec.h"
#include "device/cuda/stream.h"

namespace poseidon::cuda {

// Device memory that Encode works in: kTopK sorts magnitudes with their indices (CUB's radix sort),
// which takes about 20 bytes a float; the other codecs need none. Belongs to one stream at a time.
class CodecScratch {
 public:
  // For up to so many floats at a time. Throws Error if the device does not have the memory.
  CodecScratch(const Codec& spec, int64_t floats);
  ~CodecScratch();
  CodecScratch(const CodecScratch&) = delete;
  CodecScratch& operator=(const CodecScratch&) = delete;

  struct Sorting;
  Sorting* sorting() const { return sorting_.get(); }

 private:
  std::unique_ptr<Sorting> sorting_;
};

// Encode of core/arithmetic/codec.h.
void Encode(const Codec& spec, std::span<const float> values, std::span<float> residual,
            std::span<std::byte> out, CodecScratch& scratch, CudaStream stream);

// Decode and AddDecoded of core/arithmetic/codec.h. What the bytes are is not checked here, as the
// host would have to wait for the answer: check frames from the network before they go to the
// device.
void Decode(const Codec& spec, std::span<const std::byte> encoded, std::span<float> out,
            CudaStream stream);
void AddDecoded(const Codec& spec, std::span<const std::byte> encoded, std::span<float> accumulator,
                CudaStream stream);

}  // namespace poseidon::cuda
