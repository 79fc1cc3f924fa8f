// SlicedArithmetic: a long computation, cut into slices so short that whoever makes it can look at
// its messages in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace poseidon {

// How much there is to compute, by what takes the time; so that virtual time can tell how long.
struct ArithmeticAmount {
  double updated = 0;     // floats of parameters updated
  double operations = 0;  // floating-point operations of matrix products
};

// What one slice may come to: each takes under a millisecond on a core of 2 GB/s of updated
// parameters and 30 Gflop/s.
inline constexpr int64_t kSliceFloats = 131072;
inline constexpr int64_t kSliceOperations = 20'000'000;

// Not thread-safe. The slices are carried out once each, from 0 on, by one thread; all together
// give the bits that the whole computation would.
//
//     for (int64_t i = 0; i < work.slices; ++i) work.run(i);
struct SlicedArithmetic {
  int64_t slices = 0;
  ArithmeticAmount amount;           // of all slices; each takes as long as the others
  std::function<void(int64_t)> run;  // empty where there are no floats (phantoms)
};

// Of `floats` floats in slices of kSliceFloats: how many slices, and where one of them lies.
struct FloatSlice {
  int64_t offset = 0;
  int64_t size = 0;

  static int64_t Count(int64_t floats) { return (floats + kSliceFloats - 1) / kSliceFloats; }
  static FloatSlice At(int64_t slice, int64_t floats) {
    const int64_t offset = slice * kSliceFloats;
    return {offset, std::min(kSliceFloats, floats - offset)};
  }
};

}  // namespace poseidon
