// The k floats of the largest magnitudes (core/arithmetic/codec_top_k.cc), by sorting. To select
// them, as the host does, would be less work on the device and more code;
// tests/bench/gpu_kernels.cc says what sorting costs.
#include <glog/logging.h>

#include <cub/device/device_radix_sort.cuh>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/half.h"
#include "device/cuda/check.h"
#include "device/cuda/codec_kernels.h"

namespace poseidon::cuda {
namespace {

constexpr size_t kBytesKept = sizeof(uint32_t) + sizeof(float);
constexpr int kMagnitudeBits = 31;
constexpr int kIndexBits = 32;

// Adds the residual, if there is one, and leaves what is to be sorted.
__global__ void MagnitudesKernel(const float* values, float* residual, uint32_t* magnitudes,
                                 uint32_t* indices, size_t count) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float corrected = values[i];
  if (residual != nullptr) {
    corrected += residual[i];
    residual[i] = corrected;
  }
  magnitudes[i] = __float_as_uint(corrected) & Float32::kMagnitude;
  indices[i] = static_cast<uint32_t>(i);
}

// The values of the indices that are kept; what was sent is no longer owed.
__global__ void KeepKernel(const float* values, float* residual, const uint32_t* indices,
                           float* out, size_t kept) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= kept) return;
  const uint32_t index = indices[i];
  const float value = residual == nullptr ? values[index] : residual[index];
  out[i] = value;
  if (residual != nullptr) residual[index] = Lose::Merge(value, value);
}

template <typename Merge>
__global__ void TopKApplyKernel(const uint32_t* indices, const float* values, float* x,
                                size_t kept) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < kept) x[indices[i]] = Merge::Merge(x[indices[i]], values[i]);
}

template <typename Value>
Value* Allocate(size_t count) {
  Value* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, count * sizeof(Value)), "allocate what TOP_K sorts in");
  return memory;
}

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename Value>
using DeviceArray = std::unique_ptr<Value, FreeDevice>;

}  // namespace

struct CodecScratch::Sorting {
  size_t floats = 0;
  DeviceArray<uint32_t> magnitudes, indices;  // as they come
  DeviceArray<uint32_t> sorted_magnitudes,
      sorted_indices;           // largest first; equal ones as they came
  DeviceArray<char> temporary;  // CUB's
  size_t temporary_bytes = 0;

  explicit Sorting(size_t count)
      : floats(count),
        magnitudes(Allocate<uint32_t>(count)),
        indices(Allocate<uint32_t>(count)),
        sorted_magnitudes(Allocate<uint32_t>(count)),
        sorted_indices(Allocate<uint32_t>(count)) {
    size_t by_magnitude = 0, by_index = 0;
    CheckCuda(Sort(nullptr, by_magnitude, count, nullptr), "plan a sort");
    CheckCuda(SortIndices(nullptr, by_index, count, nullptr), "plan a sort");
    temporary_bytes = std::max(by_magnitude, by_index);
    temporary.reset(Allocate<char>(temporary_bytes));
  }

  cudaError_t Sort(void* memory, size_t& bytes, size_t count, CudaStream stream) const {
    return cub::DeviceRadixSort::SortPairsDescending(
        memory, bytes, magnitudes.get(), sorted_magnitudes.get(), indices.get(),
        sorted_indices.get(), count, 0, kMagnitudeBits, stream);
  }
  // Of the `kept` first.
  cudaError_t SortIndices(void* memory, size_t& bytes, size_t kept, CudaStream stream) const {
    return cub::DeviceRadixSort::SortKeys(memory, bytes, sorted_indices.get(), indices.get(), kept,
                                          0, kIndexBits, stream);
  }
};

CodecScratch::CodecScratch(const Codec& spec, int64_t floats) {
  if (spec.type != CodecType::kTopK || floats == 0) return;
  sorting_ = std::make_unique<Sorting>(static_cast<size_t>(floats));
}

CodecScratch::~CodecScratch() = default;

void EncodeTopK(std::span<const float> values, std::span<float> residual, std::span<std::byte> out,
                CodecScratch& scratch, CudaStream stream) {
  CodecScratch::Sorting* const sorting = scratch.sorting();
  CHECK(sorting != nullptr && values.size() <= sorting->floats) << "the scratch is too small";
  const size_t kept = out.size() / kBytesKept;
  MagnitudesKernel<<<BlocksFor(values.size()), kBlockThreads, 0, stream>>>(
      values.data(), residual.data(), sorting->magnitudes.get(), sorting->indices.get(),
      values.size());
  CheckLaunch("MagnitudesKernel");
  size_t bytes = sorting->temporary_bytes;
  CheckCuda(sorting->Sort(sorting->temporary.get(), bytes, values.size(), stream), "sort");
  CheckCuda(sorting->SortIndices(sorting->temporary.get(), bytes, kept, stream), "sort");
  CheckCuda(cudaMemcpyAsync(out.data(), sorting->indices.get(), kept * sizeof(uint32_t),
                            cudaMemcpyDeviceToDevice, stream),
            "copy indices");
  KeepKernel<<<BlocksFor(kept), kBlockThreads, 0, stream>>>(
      values.data(), residual.data(), sorting->indices.get(),
      reinterpret_cast<float*>(out.data() + kept * sizeof(uint32_t)), kept);
  CheckLaunch("KeepKernel");
}

void ApplyTopK(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
               CudaStream stream) {
  const size_t kept = encoded.size() / kBytesKept;
  const auto* const indices = reinterpret_cast<const uint32_t*>(encoded.data());
  const auto* const values =
      reinterpret_cast<const float*>(encoded.data() + kept * sizeof(uint32_t));
  const unsigned blocks = BlocksFor(kept);
  if (meeting == Meeting::kAdd) {
    TopKApplyKernel<Add><<<blocks, kBlockThreads, 0, stream>>>(indices, values, x.data(), kept);
  } else {
    CheckCuda(cudaMemsetAsync(x.data(), 0, x.size_bytes(), stream), "clear floats");
    TopKApplyKernel<Assign><<<blocks, kBlockThreads, 0, stream>>>(indices, values, x.data(), kept);
  }
  CheckLaunch("TopKApplyKernel");
}

}  // namespace poseidon::cuda
