// The codecs that treat each float alone; and which codec it is.
#include <glog/logging.h>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/half.h"
#include "device/cuda/codec.h"
#include "device/cuda/codec_kernels.h"
#include "device/cuda/launch_each.h"

namespace poseidon::cuda {
namespace {

template <typename Element>
void Pack(std::span<const float> values, std::span<float> residual, std::span<std::byte> out,
          CudaStream stream) {
  auto* const encoded = reinterpret_cast<EncodedAs<Element>*>(out.data());
  if (residual.empty()) {
    LaunchEach(EncodeEach<Element, false>{values.data(), nullptr, encoded}, values.size(), stream,
               "EncodeEach");
  } else {
    LaunchEach(EncodeEach<Element, true>{values.data(), residual.data(), encoded}, values.size(),
               stream, "EncodeEach");
  }
}

template <typename Element>
void Unpack(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
            CudaStream stream) {
  const auto* const from = reinterpret_cast<const EncodedAs<Element>*>(encoded.data());
  if (meeting == Meeting::kAdd) {
    LaunchEach(ApplyEach<Element, Add>{from, x.data()}, x.size(), stream, "ApplyEach");
  } else {
    LaunchEach(ApplyEach<Element, Assign>{from, x.data()}, x.size(), stream, "ApplyEach");
  }
}

void Apply(const Codec& spec, std::span<const std::byte> encoded, std::span<float> x,
           Meeting meeting, CudaStream stream) {
  CHECK_EQ(encoded.size(), EncodedBytes(spec, static_cast<int64_t>(x.size())));
  if (x.empty()) return;  // a launch of no blocks is an error
  switch (spec.type) {
    case CodecType::kFp32:
      return Unpack<Fp32>(encoded, x, meeting, stream);
    case CodecType::kFp16:
      return Unpack<Fp16>(encoded, x, meeting, stream);
    case CodecType::kBf16:
      return Unpack<Bf16>(encoded, x, meeting, stream);
    case CodecType::kOneBit:
      return ApplyOneBit(encoded, x, meeting, stream);
    case CodecType::kTopK:
      return ApplyTopK(encoded, x, meeting, stream);
    case CodecType::kInt8:
      return ApplyInt8(encoded, x, meeting, stream);
  }
}

void EncodeOne(const Codec& spec, const Packing& packing, CudaStream stream) {
  const auto& [values, residual, out] = packing;
  switch (spec.type) {
    case CodecType::kFp32:
      return Pack<Fp32>(values, residual, out, stream);
    case CodecType::kFp16:
      return Pack<Fp16>(values, residual, out, stream);
    case CodecType::kBf16:
      return Pack<Bf16>(values, residual, out, stream);
    case CodecType::kOneBit:
      return EncodeOneBit(values, residual, out, stream);
    case CodecType::kInt8:
      return EncodeInt8(values, residual, out, stream);
    case CodecType::kTopK:
      LOG(FATAL) << "it packs many at once";
  }
}

}  // namespace

void Encode(const Codec& spec, std::span<const Packing> packings, CodecScratch& scratch,
            CudaStream stream) {
  for (const auto& [values, residual, out] : packings) {
    CHECK(!values.empty());  // a launch of no blocks is an error
    CHECK_EQ(out.size(), EncodedBytes(spec, static_cast<int64_t>(values.size())));
    CHECK(residual.empty() || residual.size() == values.size());
  }
  if (spec.type == CodecType::kTopK) return EncodeTopK(packings, scratch, stream);
  for (const Packing& packing : packings) EncodeOne(spec, packing, stream);
}

void Decode(const Codec& spec, std::span<const std::byte> encoded, std::span<float> out,
            CudaStream stream) {
  Apply(spec, encoded, out, Meeting::kAssign, stream);
}

void AddDecoded(const Codec& spec, std::span<const std::byte> encoded, std::span<float> accumulator,
                CudaStream stream) {
  Apply(spec, encoded, accumulator, Meeting::kAdd, stream);
}

}  // namespace poseidon::cuda
