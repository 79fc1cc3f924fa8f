// core/arithmetic/codec.h on a CUDA device: the same bytes on the wire, and the same residuals, bit
// for bit. A NaN stays a NaN, but its payload may differ, and with it which ones kTopK keeps if
// there are more of them than it keeps.
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
#include "device/packing.h"

namespace poseidon::cuda {

// Device memory that Encode works in: kTopK counts magnitudes there, in 24 KB and more for each of
// up to 64 KV pairs; the other codecs need none. Belongs to one stream at a time.
class CodecScratch {
 public:
  // For up to so many KV pairs at a time, of up to so many floats each. Throws Error if the device
  // does not have the memory.
  CodecScratch(const Codec& spec, size_t pairs, size_t floats);
  ~CodecScratch();
  CodecScratch(const CodecScratch&) = delete;
  CodecScratch& operator=(const CodecScratch&) = delete;

  struct Selection;
  const Selection* selection() const { return selection_.get(); }

 private:
  std::unique_ptr<Selection> selection_;
};

// Encode of core/arithmetic/codec.h, of each by itself. kTopK has kernels for many at once, which
// is what KV pairs of usual sizes need to keep a GPU busy.
void Encode(const Codec& spec, std::span<const Packing> packings, CodecScratch& scratch,
            CudaStream stream);

// Decode and AddDecoded of core/arithmetic/codec.h. What the bytes are is not checked here, as the
// host would have to wait for the answer: check frames from the network before they go to the
// device.
void Decode(const Codec& spec, std::span<const std::byte> encoded, std::span<float> out,
            CudaStream stream);
void AddDecoded(const Codec& spec, std::span<const std::byte> encoded, std::span<float> accumulator,
                CudaStream stream);

}  // namespace poseidon::cuda
