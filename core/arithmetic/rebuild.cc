#include "core/arithmetic/rebuild.h"

#include <cblas.h>
#include <glog/logging.h>

#include <algorithm>

namespace poseidon {
namespace {

// Blocks begin at multiples of this, which is one of those by which GEMM kernels cut a matrix: an
// element is then summed up by the same instructions as in the whole product.
constexpr int64_t kGrain = 64;
constexpr int64_t kWidest = 256;  // inputs a block; as many outputs as the slice allows

struct Blocks {
  int64_t outputs;  // of a block
  int64_t inputs;
  int64_t down;  // blocks, side by side
  int64_t across;
};

int64_t Ceil(int64_t x, int64_t y) { return (x + y - 1) / y; }

Blocks BlocksOf(int64_t outputs, int64_t inputs, int64_t rows) {
  constexpr int64_t kOperations = 2;  // a multiplication and an addition
  const int64_t elements = kSliceOperations / (kOperations * std::max<int64_t>(rows, 1));
  const auto grains = [](int64_t floats) { return std::max(floats / kGrain, int64_t{1}) * kGrain; };
  // About square where little fits: that needs the fewest of the factors' floats.
  const bool wide = elements >= kWidest * kWidest;
  const int64_t across = wide ? kWidest : grains(std::min(kWidest, elements / (2 * kGrain)));
  const int64_t down = grains(elements / across);
  return {down, across, Ceil(outputs, down), Ceil(inputs, across)};
}

class Rebuild {
 public:
  Rebuild(int64_t outputs, int64_t inputs, std::span<const float> u, std::span<const float> v,
          std::span<float> gradient)
      : outputs_(outputs),
        inputs_(inputs),
        rows_(static_cast<int64_t>(u.size()) / outputs),
        blocks_(BlocksOf(outputs, inputs, rows_)),
        u_(u),
        v_(v),
        gradient_(gradient) {
    CHECK_EQ(static_cast<int64_t>(v.size()), rows_ * inputs);
    CHECK_GE(static_cast<int64_t>(gradient.size()), outputs * inputs);
  }

  int64_t slices() const { return blocks_.down * blocks_.across; }

  void Run(int64_t slice) const {
    const int64_t output = slice / blocks_.across * blocks_.outputs;
    const int64_t input = slice % blocks_.across * blocks_.inputs;
    const int64_t outputs = std::min(blocks_.outputs, outputs_ - output);
    const int64_t inputs = std::min(blocks_.inputs, inputs_ - input);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(outputs),
                static_cast<int>(inputs), static_cast<int>(rows_), 1.0F, &u_[output],
                static_cast<int>(outputs_), &v_[input], static_cast<int>(inputs_), 0.0F,
                &gradient_[output * inputs_ + input], static_cast<int>(inputs_));
    if (input == 0) SumColumns(output, outputs);
  }

 private:
  // The bias, if there is one.
  void SumColumns(int64_t first, int64_t count) const {
    const int64_t weights = outputs_ * inputs_;
    if (static_cast<int64_t>(gradient_.size()) == weights) return;
    const std::span<float> bias = gradient_.subspan(weights + first, count);
    std::fill(bias.begin(), bias.end(), 0.0F);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < count; ++i) bias[i] += u_[row * outputs_ + first + i];
    }
  }

  int64_t outputs_;
  int64_t inputs_;
  int64_t rows_;
  Blocks blocks_;
  std::span<const float> u_;
  std::span<const float> v_;
  std::span<float> gradient_;
};

}  // namespace

void RebuildGradient(int64_t outputs, int64_t inputs, std::span<const float> u,
                     std::span<const float> v, std::span<float> gradient) {
  const Rebuild rebuild(outputs, inputs, u, v, gradient);
  for (int64_t slice = 0; slice < rebuild.slices(); ++slice) rebuild.Run(slice);
}

SlicedArithmetic SlicedRebuild(int64_t outputs, int64_t inputs, int64_t rows,
                               std::span<const float> u, std::span<const float> v,
                               std::span<float> gradient) {
  const Blocks blocks = BlocksOf(outputs, inputs, rows);
  SlicedArithmetic sliced;
  sliced.slices = blocks.down * blocks.across;
  sliced.amount.operations =
      2.0 * static_cast<double>(rows) * static_cast<double>(outputs) * static_cast<double>(inputs);
  if (gradient.empty()) return sliced;
  sliced.run = [rebuild = Rebuild(outputs, inputs, u, v, gradient)](int64_t slice) {
    rebuild.Run(slice);
  };
  return sliced;
}

}  // namespace poseidon
