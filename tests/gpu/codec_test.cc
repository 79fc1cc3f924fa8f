// Each codec on a GPU against core/arithmetic/codec.h on the host: bytes, residuals and decoded
// floats.
#include "device/cuda/codec.h"

#include "tests/gpu/on_device.h"
#include "tests/unit/core/arithmetic/codec_testing.h"

namespace poseidon {
namespace {

// One that has memory of its own.
void EncodeThere(const Codec& spec, const Packing& packing) {
  if (packing.floats.empty()) return;
  cuda::CodecScratch scratch(spec, 1, packing.floats.size());
  cuda::Encode(spec, {&packing, 1}, scratch, kDefaultStream);
  CheckCuda(cudaStreamSynchronize(kDefaultStream), "pack");
}

class CodecOnDevice : public testing::TestWithParam<Codec> {};

TEST_P(CodecOnDevice, PacksTheHostsBytesWithErrorFeedback) {
  const Codec spec = GetParam();
  std::mt19937 random(1);
  for (const size_t size : kVectorSizes) {
    Floats residual(size);
    Bytes bytes(EncodedBytes(spec, static_cast<int64_t>(size)));
    const OnDevice device_residual(residual);
    const OnDevice device_bytes(bytes);
    for (int call = 0; call < 4; ++call) {
      const Floats values = RandomFloats(size, random);
      const OnDevice device_values(values);
      Encode(spec, values, residual, bytes);
      EncodeThere(spec, {device_values.span(), device_residual.span(), device_bytes.span()});
      ASSERT_EQ(device_bytes.Values(), bytes) << size << " floats, call " << call;
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_residual.Values(), residual));
    }
  }
}

TEST_P(CodecOnDevice, PacksTheHostsBytesWithoutIt) {
  const Codec spec = GetParam();
  std::mt19937 random(2);
  for (const size_t size : kVectorSizes) {
    const Floats values = RandomFloats(size, random);
    const OnDevice device_values(values);
    const OnDevice device_bytes(Bytes(EncodedBytes(spec, static_cast<int64_t>(size))));
    EncodeThere(spec, {device_values.span(), {}, device_bytes.span()});
    ASSERT_EQ(device_bytes.Values(), Encoded(spec, values)) << size << " floats";
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_values.Values(), values));
  }
}

TEST_P(CodecOnDevice, UnpacksToTheHostsFloats) {
  const Codec spec = GetParam();
  std::mt19937 random(3);
  for (const size_t size : kVectorSizes) {
    const Bytes bytes = Encoded(spec, RandomFloats(size, random));
    Floats floats = RandomFloats(size, random);
    const OnDevice device_bytes(bytes);
    const OnDevice device_floats(floats);
    ASSERT_TRUE(AddDecoded(spec, bytes, floats));
    cuda::AddDecoded(spec, device_bytes.span(), device_floats.span(), kDefaultStream);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_floats.Values(), floats));
    ASSERT_TRUE(Decode(spec, bytes, floats));
    cuda::Decode(spec, device_bytes.span(), device_floats.span(), kDefaultStream);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_floats.Values(), floats));
  }
}

TEST_P(CodecOnDevice, CarriesInfinityAndRoundsAsTheHost) {
  const Codec spec = GetParam();
  std::mt19937 random(4);
  // All exponents; also what fp16 has no normal number for.
  Floats values(1 << 16);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    } while (std::isnan(value));
  }
  values[17] = kInfinity;
  values[4000] = -kInfinity;
  Floats residual(values.size());
  const OnDevice device_values(values), device_residual(residual);
  const OnDevice device_bytes(Bytes(EncodedBytes(spec, static_cast<int64_t>(values.size()))));
  EncodeThere(spec, {device_values.span(), device_residual.span(), device_bytes.span()});
  Bytes bytes(device_bytes.span().size());
  Encode(spec, values, residual, bytes);
  ASSERT_EQ(device_bytes.Values(), bytes);
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_residual.Values(), residual));
}

// More than a launch of kTopK's kernels takes, of sizes that differ.
TEST_P(CodecOnDevice, PacksManyAtOnce) {
  const Codec spec = GetParam();
  std::mt19937 random(5);
  constexpr size_t kPairs = 150, kMostFloats = 40'000;
  cuda::CodecScratch scratch(spec, kPairs, kMostFloats);
  std::vector<std::unique_ptr<OnDevice<float>>> values, residuals;
  std::vector<std::unique_ptr<OnDevice<std::byte>>> bytes;
  std::vector<Floats> expected_residuals;
  std::vector<Bytes> expected;
  std::vector<Packing> packings;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const size_t size = pair == 0 ? kMostFloats : 1 + random() % (pair % 7 == 0 ? kMostFloats : 50);
    const Floats drawn = RandomFloats(size, random);
    expected_residuals.push_back(RandomFloats(size, random));
    expected.emplace_back(EncodedBytes(spec, static_cast<int64_t>(size)));
    values.push_back(std::make_unique<OnDevice<float>>(drawn));
    residuals.push_back(std::make_unique<OnDevice<float>>(expected_residuals.back()));
    bytes.push_back(std::make_unique<OnDevice<std::byte>>(expected.back()));
    packings.push_back({values.back()->span(), residuals.back()->span(), bytes.back()->span()});
    Encode(spec, drawn, expected_residuals.back(), expected.back());
  }
  cuda::Encode(spec, packings, scratch, kDefaultStream);
  for (size_t pair = 0; pair < kPairs; ++pair) {
    ASSERT_EQ(bytes[pair]->Values(), expected[pair]) << "pair " << pair;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(residuals[pair]->Values(), expected_residuals[pair]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecOnDevice, testing::ValuesIn(kAll));

}  // namespace
}  // namespace poseidon
