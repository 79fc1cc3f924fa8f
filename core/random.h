// Random numbers that are the same on every platform, which the standard library's distributions
// and std::shuffle are not.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

namespace poseidon {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): its
// state is one 64-bit number, and any seed is as good as another. A value type; one thread at a
// time.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in 0..bound - 1. Draws again while the draw is in the incomplete last run of `bound`
  // numbers, so that none is likelier than another.
  uint64_t Below(uint64_t bound) {
    const uint64_t incomplete = (0 - bound) % bound;  // 2^64 mod bound
    uint64_t draw = Next();
    while (draw < incomplete) draw = Next();
    return draw % bound;
  }

  // Uniform in [0, 1), with the 53 bits that a double holds.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // True with this probability.
  bool Chance(double probability) { return Uniform() < probability; }

  // Standard normal, by Box and Muller's transform; the logarithm's argument is never 0.
  double Gaussian() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  uint64_t state_;
};

// Puts values in a random order: Fisher and Yates's shuffle.
template <typename T>
void Shuffle(std::vector<T>& values, uint64_t seed) {
  Random random(seed);
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.Below(i)]);
  }
}

// A seed of its own for each number (epoch, position in the data) under one seed.
inline uint64_t DeriveSeed(uint64_t seed, uint64_t number) {
  return Random(seed ^ Random(number).Next()).Next();
}

// A seed of its own for each name: FNV-1a over its bytes.
inline uint64_t DeriveSeed(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return DeriveSeed(seed, hash);
}

}  // namespace poseidon
