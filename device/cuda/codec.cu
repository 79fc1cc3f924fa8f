// The codecs that treat each float alone; and which codec it is.
#include <glog/logging.h>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/half.h"
#include "device/cuda/check.h"
#include "device/cuda/codec.h"
#include "device/cuda/codec_kernels.h"

namespace poseidon::cuda {
namespace {

struct Fp32 {
  __device__ static float FromFloat(float value) { return value; }
  __device__ static float ToFloat(float value) { return value; }
};

template <typename Element>
using EncodedAs = decltype(Element::FromFloat(0.0F));

template <typename Element>
__global__ void EncodeKernel(const float* values, float* residual, EncodedAs<Element>* out,
                             size_t count) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float corrected = residual == nullptr ? values[i] : residual[i] + values[i];
  const EncodedAs<Element> encoded = Element::FromFloat(corrected);
  out[i] = encoded;
  if (residual != nullptr) residual[i] = Lose::Merge(corrected, Element::ToFloat(encoded));
}

template <typename Element, typename Merge>
__global__ void ApplyKernel(const EncodedAs<Element>* encoded, float* x, size_t count) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) x[i] = Merge::Merge(x[i], Element::ToFloat(encoded[i]));
}

template <typename Element>
void EncodeEach(std::span<const float> values, std::span<float> residual, std::span<std::byte> out,
                CudaStream stream) {
  EncodeKernel<Element><<<BlocksFor(values.size()), kBlockThreads, 0, stream>>>(
      values.data(), residual.data(), reinterpret_cast<EncodedAs<Element>*>(out.data()),
      values.size());
  CheckLaunch("EncodeKernel");
}

template <typename Element>
void ApplyEach(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
               CudaStream stream) {
  const auto* const from = reinterpret_cast<const EncodedAs<Element>*>(encoded.data());
  const unsigned blocks = BlocksFor(x.size());
  if (meeting == Meeting::kAdd) {
    ApplyKernel<Element, Add><<<blocks, kBlockThreads, 0, stream>>>(from, x.data(), x.size());
  } else {
    ApplyKernel<Element, Assign><<<blocks, kBlockThreads, 0, stream>>>(from, x.data(), x.size());
  }
  CheckLaunch("ApplyKernel");
}

void Apply(const Codec& spec, std::span<const std::byte> encoded, std::span<float> x,
           Meeting meeting, CudaStream stream) {
  CHECK_EQ(encoded.size(), EncodedBytes(spec, static_cast<int64_t>(x.size())));
  if (x.empty()) return;  // a launch of no blocks is an error
  switch (spec.type) {
    case CodecType::kFp32:
      return ApplyEach<Fp32>(encoded, x, meeting, stream);
    case CodecType::kFp16:
      return ApplyEach<Fp16>(encoded, x, meeting, stream);
    case CodecType::kBf16:
      return ApplyEach<Bf16>(encoded, x, meeting, stream);
    case CodecType::kOneBit:
      return ApplyOneBit(encoded, x, meeting, stream);
    case CodecType::kTopK:
      return ApplyTopK(encoded, x, meeting, stream);
    case CodecType::kInt8:
      return ApplyInt8(encoded, x, meeting, stream);
  }
}

}  // namespace

void Encode(const Codec& spec, std::span<const float> values, std::span<float> residual,
            std::span<std::byte> out, CodecScratch& scratch, CudaStream stream) {
  CHECK_EQ(out.size(), EncodedBytes(spec, static_cast<int64_t>(values.size())));
  CHECK(residual.empty() || residual.size() == values.size());
  if (values.empty()) return;
  switch (spec.type) {
    case CodecType::kFp32:
      return EncodeEach<Fp32>(values, residual, out, stream);
    case CodecType::kFp16:
      return EncodeEach<Fp16>(values, residual, out, stream);
    case CodecType::kBf16:
      return EncodeEach<Bf16>(values, residual, out, stream);
    case CodecType::kOneBit:
      return EncodeOneBit(values, residual, out, stream);
    case CodecType::kTopK:
      return EncodeTopK(values, residual, out, scratch, stream);
    case CodecType::kInt8:
      return EncodeInt8(values, residual, out, stream);
  }
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
