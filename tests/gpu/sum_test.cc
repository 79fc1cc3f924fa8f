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

// Vectors that begin where a thread can't read four floats at once, both or one of them.
TEST(SumOnDevice, HasTheBitsOfTheHostWhereverVectorsBegin) {
  constexpr size_t kCount = 10'007;
  std::mt19937 random(2);
  for (const size_t first : {0, 1, 2, 3}) {
    for (const size_t other : {0, 1}) {
      std::vector<float> sum = FloatsOfManySizes(kCount, random);
      const std::vector<float> addend = FloatsOfManySizes(kCount, random);
      const OnDevice device_sum(sum), device_addend(addend);
      const size_t count = kCount - 4;
      cuda::AddInto(device_sum.span().subspan(first, count),
                    device_addend.span().subspan(other, count), kDefaultStream);
      AddInto(std::span(sum).subspan(first, count),
              std::as_bytes(std::span(addend).subspan(other, count)));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_sum.Values(), sum));
    }
  }
}

}  // namespace
}  // namespace poseidon
