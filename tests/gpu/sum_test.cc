// Sums and scaling on a GPU against the host's, bit for bit.
#include "device/cuda/sum.h"

#include "core/arithmetic/sum.h"
#include "tests/gpu/on_device.h"

namespace poseidon {
namespace {

TEST(SumOnDevice, HasTheBitsOfTheHost) {
  std::mt19937 random(1);
  for (const size_t size : kVectorSizes) {
    std::vector<float> sum = FloatsOfManySizes(size, random);
    const std::vector<float> addend = FloatsOfManySizes(size, random);
    const OnDevice device_sum(sum), device_addend(addend);
    cuda::AddInto(device_sum.span(), device_addend.span(), kDefaultStream);
    AddInto(sum, std::as_bytes(std::span(addend)));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_sum.Values(), sum));
    cuda::Scale(device_sum.span(), 0.3F, kDefaultStream);
    for (float& f : sum) f *= 0.3F;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_sum.Values(), sum));
  }
}

}  // namespace
}  // namespace poseidon
