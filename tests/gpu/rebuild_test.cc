// The gradient from factors by cuBLAS against sums in double precision, and the update with it
// against the host's.
#include "device/cuda/rebuild.h"

#include "tests/gpu/on_device.h"

namespace poseidon {
namespace {

// Largest size of a float32 sum of `rows` products of numbers near 1 is near rows; its error is at
// most so many roundings of half a last place.
float Tolerance(int64_t rows) {
  return static_cast<float>(rows * rows) * std::numeric_limits<float>::epsilon();
}

struct Shape {
  int64_t rows, outputs, inputs;
};

class RebuildOnDevice : public testing::TestWithParam<Shape> {
 protected:
  std::vector<float> RandomFloats(int64_t count) {
    std::uniform_real_distribution<float> value(-1, 1);
    std::vector<float> floats(static_cast<size_t>(count));
    for (float& f : floats) f = value(random_);
    return floats;
  }

  std::mt19937 random_{1};
};

TEST_P(RebuildOnDevice, AddsUpTheProductsAndTheBias) {
  const auto [rows, outputs, inputs] = GetParam();
  const std::vector<float> u = RandomFloats(rows * outputs), v = RandomFloats(rows * inputs);
  const OnDevice device_u(u), device_v(v);
  const OnDevice gradient(std::vector<float>(outputs * inputs + outputs, -1));
  cuda::GradientRebuilder rebuilder;
  rebuilder.Rebuild(outputs, inputs, device_u.span(), device_v.span(), gradient.span(),
                    kDefaultStream);
  const std::vector<float> got = gradient.Values();
  for (int64_t o = 0; o < outputs; ++o) {
    double bias = 0;
    for (int64_t r = 0; r < rows; ++r) bias += u[r * outputs + o];
    ASSERT_NEAR(got[outputs * inputs + o], bias, Tolerance(rows));
    for (int64_t i = 0; i < inputs; ++i) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += double{u[r * outputs + o]} * v[r * inputs + i];
      ASSERT_NEAR(got[o * inputs + i], sum, Tolerance(rows)) << o << ", " << i;
    }
  }
}

TEST_P(RebuildOnDevice, UpdatesWithWhatItHasRebuilt) {
  const auto [rows, outputs, inputs] = GetParam();
  const int64_t weights = outputs * inputs;
  const OnDevice u(RandomFloats(rows * outputs)), v(RandomFloats(rows * inputs));
  std::vector<float> parameters = RandomFloats(weights + outputs);
  std::vector<float> optimizer_state = RandomFloats(weights + outputs);
  const OnDevice gradient(std::vector<float>(parameters.size()));
  const OnDevice device_parameters(parameters), device_optimizer_state(optimizer_state);
  UpdateRule rule;
  rule.momentum = 0.9F;
  rule.weight_decay = 0.01F;
  cuda::GradientRebuilder rebuilder;
  const ProductUpdate layer{.outputs = outputs,
                            .inputs = inputs,
                            .rows = rows,
                            .rule = &rule,
                            .weights = {1, 1},
                            .bias = {2, 0},
                            .gradient_scale = 0.5F};
  rebuilder.RebuildAndUpdate(layer, 3,
                             {u.span(), v.span(), gradient.span(), device_parameters.span(),
                              device_optimizer_state.span()},
                             kDefaultStream);
  const std::vector<float> sum = gradient.Values();
  const auto whole = std::span(sum);
  const auto p = std::span(parameters), h = std::span(optimizer_state);
  Update({rule, 3, {1, 1}, 0.5F}, whole.first(weights), p.first(weights), h.first(weights));
  Update({rule, 3, {2, 0}, 0.5F}, whole.subspan(weights), p.subspan(weights), h.subspan(weights));
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_parameters.Values(), parameters));
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_optimizer_state.Values(), optimizer_state));
}

INSTANTIATE_TEST_SUITE_P(Shapes, RebuildOnDevice,
                         testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{64, 10, 500},
                                         Shape{33, 129, 65}, Shape{256, 100, 300}));

}  // namespace
}  // namespace poseidon
