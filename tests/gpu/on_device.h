// What the tests of kernels share: vectors in a GPU's memory, moved by plain synchronous copies,
// and random floats.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "device/cuda/check.h"

namespace poseidon {

template <typename Value>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<Value>& values) : size_(values.size()) {
    // At least one, so that an empty vector has a place, too.
    CheckCuda(cudaMalloc(&data_, (size_ + 1) * sizeof(Value)), "allocate");
    CheckCuda(cudaMemcpy(data_, values.data(), size_ * sizeof(Value), cudaMemcpyHostToDevice),
              "copy to the device");
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  std::span<Value> span() const { return {data_, size_}; }
  // When all the device's work is done.
  std::vector<Value> Values() const {
    std::vector<Value> values(size_);
    CheckCuda(cudaDeviceSynchronize(), "do its work");
    CheckCuda(cudaMemcpy(values.data(), data_, size_ * sizeof(Value), cudaMemcpyDeviceToHost),
              "copy to the host");
    return values;
  }

 private:
  size_t size_;
  Value* data_ = nullptr;
};

// The stream of tests that need no other.
inline constexpr cudaStream_t kDefaultStream = nullptr;

// Sizes around warps, blocks and the blocks of codecs, and large ones that are no multiple of any.
inline const size_t kVectorSizes[] = {0,   1,    7,    31,   32,   33,    255,   256,    257,
                                      999, 1023, 1024, 1025, 2047, 10007, 65537, 300007, 1 << 20};

// Of many magnitudes, so that there are subnormal squares, and some 0.
inline std::vector<float> FloatsOfManySizes(size_t count, std::mt19937& random) {
  std::normal_distribution<float> value;
  std::vector<float> floats(count);
  for (float& f : floats) {
    f = random() % 8 == 0 ? 0.0F : std::exp(8 * value(random) - 8) * value(random);
  }
  return floats;
}

// NaNs are equal, whatever their payload.
inline void ExpectSameBits(const std::vector<float>& device, const std::vector<float>& host) {
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) {
    if (std::isnan(device[i]) && std::isnan(host[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(device[i]), std::bit_cast<uint32_t>(host[i]))
        << device[i] << " on the device, " << host[i] << " on the host, float " << i << " of "
        << host.size();
  }
}

}  // namespace poseidon
