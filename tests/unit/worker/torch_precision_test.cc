// Mixed precision: single layers against float arithmetic on rounded values, whole nets against
// float32.
#include "worker/torch/torch_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/torch_engine_testing.h"
#include "tests/unit/worker/torch_layer_testing.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

// --- Single layers. ---

constexpr Precision kHalfPrecisions[] = {Precision::kFloat16, Precision::kBfloat16};

at::ScalarType TypeOf(Precision precision) {
  return precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16;
}

at::Tensor Rounded(const at::Tensor& tensor, Precision precision) {
  return tensor.to(at::kFloat).to(TypeOf(precision)).to(at::kFloat);
}

std::unique_ptr<TorchLayer> Mixed(const Subject& subject, Precision precision) {
  return WithPrecision(subject.Make(),
                       {.description = subject.description,
                        .bottom_needs_gradient = subject.needs_gradient,
                        .parameter_needs_gradient = subject.parameter_needs_gradient,
                        .seed = 17,
                        .device = at::kCPU},
                       precision);
}

// The types of what a layer makes of bottoms of these types.
std::vector<at::ScalarType> TopTypes(const Subject& subject, Precision precision,
                                     const std::vector<at::ScalarType>& bottom_types) {
  Tensors bottoms;
  for (size_t i = 0; i < bottom_types.size(); ++i) {
    bottoms.push_back(subject.bottoms[i].to(bottom_types[i]));
  }
  std::vector<at::ScalarType> types;
  for (const at::Tensor& top :
       Mixed(subject, precision)
           ->Forward({}, bottoms, Subject::To(subject.parameters, at::kFloat))) {
    types.push_back(top.scalar_type());
  }
  return types;
}

TEST(TorchPrecisionTest, LayersComputeInTheTypeThatIsGoodForThem) {
  using Types = std::vector<at::ScalarType>;
  const Shape image = {2, 4, 6, 6};
  const Subject convolution(
      "type: 'Convolution' convolution_param { num_output: 3 kernel_size: 3 }",
      {RandomTensor(image)});
  const Subject pooling("type: 'Pooling' pooling_param { kernel_size: 2 }", {RandomTensor(image)});
  // Its second top counts places, further than a half type does.
  const Subject places("type: 'Pooling' top: 'a' top: 'places' pooling_param { kernel_size: 2 }",
                       {RandomTensor(image)});
  const Subject norm("type: 'BatchNorm'", {RandomTensor(image)});
  const Subject lrn("type: 'LRN'", {RandomTensor(image)});
  const Subject sum("type: 'Eltwise'", {RandomTensor(image), RandomTensor(image)});
  const Subject loss("type: 'SoftmaxWithLoss'", {RandomTensor({4, 5}), RandomLabels({4}, 5)},
                     {true, false});
  const Subject weighted(
      "type: 'InnerProduct' loss_weight: 1 inner_product_param { num_output: 1 }",
      {RandomTensor({3, 4})});
  for (const Precision precision : kHalfPrecisions) {
    const at::ScalarType half = TypeOf(precision);
    for (const at::ScalarType given : {half, at::kFloat}) {
      EXPECT_EQ(TopTypes(convolution, precision, {given}), Types{half});
      EXPECT_EQ(TopTypes(pooling, precision, {given}), Types{given});
      EXPECT_EQ(TopTypes(places, precision, {given}), (Types{at::kFloat, at::kFloat}));
      EXPECT_EQ(TopTypes(norm, precision, {given}), Types{given});
      EXPECT_EQ(TopTypes(lrn, precision, {given}), Types{at::kFloat});
      EXPECT_EQ(TopTypes(sum, precision, {half, given}), Types{given});
      EXPECT_EQ(TopTypes(loss, precision, {given, at::kFloat}), Types{at::kFloat});
      EXPECT_EQ(TopTypes(weighted, precision, {given}), Types{at::kFloat});
    }
  }
  EXPECT_EQ(TopTypes(convolution, Precision::kFloat32, {at::kFloat}), Types{at::kFloat});
}

// What is found is `expected`, rounded once. Here and there a float's sum is on the other side of
// the middle between two numbers than a double's.
void ExpectRounded(const at::Tensor& found, const at::Tensor& expected, Precision precision,
                   const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const at::Tensor other = found.to(at::kFloat).ne(Rounded(expected, precision));
  EXPECT_LE(other.sum().item<int64_t>(), 1 + found.numel() / 100)
      << what << " of " << found.numel();
  const double rounding = precision == Precision::kFloat16 ? 0x1p-11 : 0x1p-8;
  ExpectClose(found, expected, rounding, what);
}

void CheckArithmetic(const Subject& subject, Precision precision) {
  SCOPED_TRACE(subject.description.parameter.ShortDebugString());
  const auto layer = Mixed(subject, precision);
  const Tensors tops = layer->Forward({}, Subject::To(subject.bottoms, at::kFloat),
                                      Subject::To(subject.parameters, at::kFloat));
  const at::Tensor top_gradient = Rounded(RandomTensor(tops[0].sizes().vec()), precision);
  ParameterGradients gradients;
  for (const at::Tensor& parameter : subject.parameters) {
    gradients.blobs.push_back(at::full_like(parameter, 77).to(at::kFloat));
  }
  const Tensors bottom_gradients = layer->Backward({top_gradient.to(TypeOf(precision))}, gradients);

  Subject rounded = subject;
  for (Tensors* tensors : {&rounded.bottoms, &rounded.parameters}) {
    for (at::Tensor& tensor : *tensors) tensor = Rounded(tensor, precision).to(at::kDouble);
  }
  ExpectRounded(tops[0], rounded.Forward()[0], precision, "top");
  const Tensors expected = rounded.Backward({top_gradient.to(at::kDouble)}, at::kDouble);
  ASSERT_EQ(bottom_gradients[0].scalar_type(), at::kFloat) << "as the bottom";
  ExpectRounded(bottom_gradients[0], expected[0], precision, "bottom gradient");
  for (size_t i = 0; i < gradients.blobs.size(); ++i) {
    ExpectRounded(gradients.blobs[i], expected[1 + i], precision, "gradient " + std::to_string(i));
  }
}

TEST(TorchPrecisionTest, ProductsAreThoseOfRoundedValues) {
  for (const Precision precision : kHalfPrecisions) {
    for (int i = 0; i < 5; ++i) {
      const int64_t channels = Draw(1, 4);
      CheckArithmetic(Subject("type: 'Convolution' convolution_param { kernel_size: 3" +
                                  Field("num_output", Draw(1, 4)) + " }",
                              {RandomTensor({Draw(1, 3), channels, 6, 7})}),
                      precision);
      CheckArithmetic(Subject("type: 'Deconvolution' convolution_param { kernel_size: 2 stride: 2" +
                                  Field("num_output", Draw(1, 4)) + " }",
                              {RandomTensor({Draw(1, 3), channels, 3, 4})}),
                      precision);
      CheckArithmetic(
          Subject("type: 'InnerProduct' inner_product_param {" + Field("num_output", Draw(1, 9)) +
                      (i % 2 ? " transpose: true }" : " }"),
                  {RandomTensor({Draw(1, 5), channels, 3})}),
          precision);
    }
  }
}

TEST(TorchPrecisionTest, FactorsAreFloatsOfRoundedValues) {
  const Subject subject("type: 'InnerProduct' inner_product_param { num_output: 4 }",
                        {RandomTensor({3, 5})});
  for (const Precision precision : kHalfPrecisions) {
    const auto layer = Mixed(subject, precision);
    layer->Forward({}, Subject::To(subject.bottoms, at::kFloat),
                   Subject::To(subject.parameters, at::kFloat));
    ParameterGradients gradients;
    gradients.u = at::full({3, 4}, 77.0F);
    gradients.v = at::full({3, 5}, 77.0F);
    const at::Tensor top_gradient = Rounded(RandomTensor({3, 4}), precision);
    layer->Backward({top_gradient.to(TypeOf(precision))}, gradients);
    EXPECT_TRUE(at::equal(gradients.u, top_gradient));
    EXPECT_TRUE(at::equal(gradients.v, Rounded(subject.bottoms[0], precision)));
  }
}

// --- Whole nets. ---

class TorchPrecisionNetTest : public TorchEngineTest {};

// A rounding changes a value by up to `rounding` of itself; a gradient has come by some 20 of them,
// which add up like a random walk. Below a maximum or a ReLU that is not the most: where the two
// largest values of a window, or a value and 0, are closer than the rounding, it decides which way
// the gradient takes. As many of a thousand places do as the rounding is thousandths, and each
// changes its part of the gradient as a whole: relative to the length of the gradient that is the
// root of their share.
void CheckGradients(const TorchEngineOptions& options, Precision precision, double rounding) {
  Trainee exact(options);
  TorchEngineOptions mixed_options = options;
  mixed_options.precision = precision;
  Trainee mixed(mixed_options);
  ASSERT_EQ(mixed.parameters, exact.parameters) << "parameters are float32";
  const std::vector<Floats> before = mixed.parameters;
  const float loss = exact.Iterate(0);
  EXPECT_NEAR(mixed.Iterate(0), loss, 4 * rounding * loss);
  for (size_t layer = 0; layer < exact.gradients.size(); ++layer) {
    const std::string name = exact.engine().model().layers(static_cast<int>(layer)).name();
    const double distance = RelativeDistance(mixed.gradients[layer], exact.gradients[layer]);
    const bool last = layer + 1 == exact.gradients.size();  // nothing but the loss comes after it
    EXPECT_LT(distance, last ? 10 * rounding : 2 * std::sqrt(rounding)) << name;
    EXPECT_GT(distance, 0.05 * rounding) << name << ": was it rounded at all?";
  }
  EXPECT_EQ(mixed.parameters, before) << "only updates change parameters";
}

TEST_F(TorchPrecisionNetTest, GradientsOfLeNet) {
  WriteDigits("train", 64, 28, 1);
  CheckGradients(LeNet(), Precision::kBfloat16, 0x1p-9);
  CheckGradients(LeNet(), Precision::kFloat16, 0x1p-12);
}

TEST_F(TorchPrecisionNetTest, GradientsOfCifarQuick) {
  WriteDigits("train", 100, 32, 1, 3);
  const TorchEngineOptions options = CifarQuick();
  CheckGradients(options, Precision::kBfloat16, 0x1p-9);
  CheckGradients(options, Precision::kFloat16, 0x1p-12);
}

TEST_F(TorchPrecisionNetTest, LeNetLearnsInFloat16) {
  WriteDigits("train", 320, 28, 1);
  TorchEngineOptions options = LeNet();
  options.batch_per_worker = 32;
  options.precision = Precision::kFloat16;
  // Far too high at first, and as high again as it gets soon.
  options.loss_scaling = {.initial_scale = 0x1p24F, .growth_interval = 10};
  Trainee trainee(options);
  int64_t zeros = 0;
  for (int64_t iteration = 0; iteration < 150; ++iteration) {
    trainee.Iterate(iteration);
    zeros += trainee.gradients[0] == Floats(trainee.gradients[0].size()) ? 1 : 0;
    trainee.Update(iteration);
  }
  EXPECT_GT(zeros, 3) << "the scale was meant to overflow";
  const TestResult result = trainee.engine().Test();
  EXPECT_GT(result.accuracy.value(), 0.97F);
}

// The scale makes nothing of values that are out of float16's range before any gradient is.
TEST_F(TorchPrecisionNetTest, ALossThatIsNotFiniteShows) {
  WriteDigits("train", 20, 10, 1);
  TorchEngineOptions options = Options(R"(
    layer { name: 'far' type: 'Power' bottom: 'data' top: 'far' power_param { scale: 1e6 } }
    layer { name: 'ip' type: 'InnerProduct' bottom: 'far' top: 'ip'
            inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
    layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })",
                                       5);
  Trainee exact(options);
  exact.Iterate(0);
  EXPECT_EQ(exact.engine().FirstNotFinite(), "");
  options.precision = Precision::kFloat16;
  Trainee trainee(options);
  EXPECT_FALSE(std::isfinite(trainee.Forward(0)));
  EXPECT_THAT(trainee.engine().FirstNotFinite(), HasSubstr("\"ip\" (InnerProduct), in its result"));
  EXPECT_FALSE(std::isfinite(trainee.Iterate(0)));
  EXPECT_THAT(trainee.engine().FirstNotFinite(), HasSubstr("\"ip\" (InnerProduct), in its result"))
      << "also when the backward pass has taken the results away";
  EXPECT_THAT(trainee.gradients[0], ::testing::Each(0.0F));
  trainee.parameters[0][7] = std::nanf("");
  EXPECT_THAT(trainee.engine().FirstNotFinite(), HasSubstr("\"ip\" (InnerProduct), in its par"));
}

}  // namespace
}  // namespace poseidon
