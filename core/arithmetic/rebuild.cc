#include "core/arithmetic/rebuild.h"

#include <cblas.h>
#include <glog/logging.h>

#include <algorithm>

namespace poseidon {

void RebuildGradient(int64_t outputs, int64_t inputs, std::span<const float> u,
                     std::span<const float> v, std::span<float> gradient) {
  const int64_t rows = static_cast<int64_t>(u.size()) / outputs;
  const int64_t weights = outputs * inputs;
  CHECK_EQ(static_cast<int64_t>(v.size()), rows * inputs);
  CHECK_GE(static_cast<int64_t>(gradient.size()), weights);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(outputs),
              static_cast<int>(inputs), static_cast<int>(rows), 1.0F, u.data(),
              static_cast<int>(outputs), v.data(), static_cast<int>(inputs), 0.0F, gradient.data(),
              static_cast<int>(inputs));
  if (static_cast<int64_t>(gradient.size()) == weights) return;
  const std::span<float> bias = gradient.subspan(weights, outputs);
  std::fill(bias.begin(), bias.end(), 0.0F);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t output = 0; output < outputs; ++output) bias[output] += u[row * outputs + output];
  }
}

}  // namespace poseidon
