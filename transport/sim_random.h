// SimRandom: the random numbers of a simulation, the same on every machine and library.
#pragma once

#include <cstdint>

#include "core/time.h"

namespace poseidon {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): one
// word of state, every seed is good, period 2^64. The standard library's distributions are not used
// because each library has its own.
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }

  // In [0, 1), a multiple of 2^-53.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // True with this probability.
  bool Chance(double probability) { return Uniform() < probability; }

  // In [0, limit).
  Duration UpTo(Duration limit) {
    return Duration(static_cast<int64_t>(Uniform() * static_cast<double>(limit.count())));
  }

 private:
  uint64_t state_;
};

}  // namespace poseidon
