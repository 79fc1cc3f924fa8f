// First values of a training that are as near to others as can be.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>

namespace poseidon {

// Moves each value by one unit in the last place, up or down as `random` says.
inline void MoveByOneUnit(std::mt19937_64& random, std::span<float> values) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float& value : values) {
    value = std::nextafter(value, random() % 2 == 0 ? kInfinity : -kInfinity);
  }
}

}  // namespace poseidon
