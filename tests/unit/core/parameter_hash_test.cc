#include "core/parameter_hash.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdio>
#include <numeric>
#include <vector>

namespace poseidon {
namespace {

std::vector<float> Ramp(size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), -1.5F);
  return values;
}

std::string HashOf(const std::vector<float>& values) {
  ParameterHash hash;
  hash.Add(values);
  return hash.ToString();
}

// XXH3-128 of nothing is a constant of the hash itself.
TEST(ParameterHashTest, IsXxh3) {
  EXPECT_EQ(ParameterHash().ToString(), "99aa06d3014798d86001c324468d497f");
  const std::vector<float> values = Ramp(1000);
  const XXH128_hash_t expected = XXH3_128bits(values.data(), values.size() * sizeof(float));
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, expected);
  std::string digits;
  for (const unsigned char byte : canonical.digest) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    digits += text;
  }
  EXPECT_EQ(HashOf(values), digits);
}

TEST(ParameterHashTest, DoesNotDependOnHowTheModelIsCut) {
  const std::vector<float> values = Ramp(1000);
  const std::span<const float> all(values);
  ParameterHash cut;
  cut.Add(all.first(3));
  cut.Add({});
  cut.Add(all.subspan(3, 700));
  cut.Add(all.subspan(703));
  EXPECT_EQ(cut.ToString(), HashOf(values));
}

TEST(ParameterHashTest, DependsOnValuesAndTheirOrder) {
  const std::vector<float> values = Ramp(8);
  std::vector<float> other = values;
  std::swap(other[0], other[1]);
  EXPECT_NE(HashOf(other), HashOf(values));
}

}  // namespace
}  // namespace poseidon
