#include "core/arithmetic/sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace poseidon {
namespace {

std::vector<float> RandomFloats(size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1e3F, 1e3F);
  std::vector<float> floats(count);
  for (float& f : floats) f = value(random);
  return floats;
}

// A frame that holds `floats` at `offset` bytes from an aligned address.
class Frame {
 public:
  Frame(const std::vector<float>& floats, size_t offset)
      : bytes_(floats.size() * sizeof(float) + offset), offset_(offset) {
    if (floats.empty()) return;
    std::memcpy(bytes_.data() + offset, floats.data(), floats.size() * sizeof(float));
  }
  std::span<const std::byte> view() const { return std::span(bytes_).subspan(offset_); }

 private:
  std::vector<std::byte> bytes_;
  size_t offset_;
};

// Around the widths of vector loops, primes, and sizes that no unrolling divides.
const size_t kSizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 61, 127, 1021, 4096, 65537};

TEST(AddInto, AddsElementByElementAtAnyAlignment) {
  std::mt19937 random(1);
  for (size_t size : kSizes) {
    for (size_t offset : {0, 1, 2, 3, 4, 5, 31}) {
      // Guards on both sides must stay as they are.
      std::vector<float> accumulator = RandomFloats(size + 2, random);
      const std::vector<float> addend = RandomFloats(size, random);
      std::vector<float> expected = accumulator;
      for (size_t i = 0; i < size; ++i) expected[i + 1] = expected[i + 1] + addend[i];

      AddInto(std::span(accumulator).subspan(1, size), Frame(addend, offset).view());
      ASSERT_EQ(accumulator, expected) << "size " << size << ", offset " << offset;
    }
  }
}

TEST(AddInto, PiecesGiveTheSameBitsAsTheWhole) {
  std::mt19937 random(2);
  const size_t size = 10007;
  const std::vector<float> start = RandomFloats(size, random);
  const Frame addend(RandomFloats(size, random), 3);
  std::vector<float> whole = start;
  AddInto(whole, addend.view());
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<float> pieces = start;
    for (size_t begin = 0; begin < size;) {
      const size_t count = std::min<size_t>(size - begin, random() % 700);
      AddInto(std::span(pieces).subspan(begin, count),
              addend.view().subspan(begin * sizeof(float), count * sizeof(float)));
      begin += count;
    }
    ASSERT_TRUE(
        std::ranges::equal(std::as_bytes(std::span(pieces)), std::as_bytes(std::span(whole))));
  }
}

TEST(CopyFrom, CopiesAtAnyAlignment) {
  std::mt19937 random(3);
  for (size_t size : kSizes) {
    for (size_t offset : {0, 1, 4, 7}) {
      const std::vector<float> source = RandomFloats(size, random);
      std::vector<float> destination(size);
      CopyFrom(destination, Frame(source, offset).view());
      ASSERT_EQ(destination, source) << "size " << size << ", offset " << offset;
    }
  }
}

TEST(SumDeathTest, AFrameOfTheWrongLengthEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> floats(4);
  const std::vector<std::byte> bytes(15);
  EXPECT_DEATH(AddInto(floats, bytes), "Check failed: addend.size\\(\\)");
  EXPECT_DEATH(CopyFrom(floats, bytes), "Check failed: source.size\\(\\)");
}

}  // namespace
}  // namespace poseidon
