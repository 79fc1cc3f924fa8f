// Layers on images, and those with parameters: forward against a direct implementation in loops,
// gradients, in double precision, against finite differences; on random small shapes.
#include "tests/unit/worker/torch_layer_testing.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// --- Convolution and InnerProduct. ---

struct Conv {
  int64_t group, stride_h, stride_w, pad_h, pad_w, dilation;
};

at::Tensor ReferenceConvolution(const at::Tensor& x, const at::Tensor& w, const at::Tensor* bias,
                                const Shape& top_shape, const Conv& c) {
  at::Tensor top = at::zeros(top_shape, at::kDouble);
  const auto in = x.accessor<double, 4>();
  const auto weights = w.accessor<double, 4>();
  auto out = top.accessor<double, 4>();
  const int64_t outputs_per_group = top_shape[1] / c.group;
  for (int64_t n = 0; n < top_shape[0]; ++n)
    for (int64_t o = 0; o < top_shape[1]; ++o)
      for (int64_t y = 0; y < top_shape[2]; ++y)
        for (int64_t z = 0; z < top_shape[3]; ++z) {
          double sum = bias ? bias->accessor<double, 1>()[o] : 0;
          for (int64_t i = 0; i < w.size(1); ++i)
            for (int64_t ky = 0; ky < w.size(2); ++ky)
              for (int64_t kz = 0; kz < w.size(3); ++kz) {
                const int64_t h = y * c.stride_h - c.pad_h + ky * c.dilation;
                const int64_t v = z * c.stride_w - c.pad_w + kz * c.dilation;
                if (h < 0 || v < 0 || h >= x.size(2) || v >= x.size(3)) continue;
                sum += in[n][o / outputs_per_group * w.size(1) + i][h][v] * weights[o][i][ky][kz];
              }
          out[n][o][y][z] = sum;
        }
  return top;
}

TEST(TorchLayersTest, Convolution) {
  for (int trial = 0; trial < 25; ++trial) {
    const Conv c{Draw(1, 2), Draw(1, 3), Draw(1, 3), Draw(0, 2), Draw(0, 2), Draw(1, 2)};
    const bool bias = Draw(0, 1) == 1;
    const std::string text = "type: 'Convolution' convolution_param {" +
                             Field("num_output", c.group * Draw(1, 3)) + Field("group", c.group) +
                             Field("kernel_h", Draw(1, 3)) + Field("kernel_w", Draw(1, 3)) +
                             Field("stride_h", c.stride_h) + Field("stride_w", c.stride_w) +
                             Field("pad_h", c.pad_h) + Field("pad_w", c.pad_w) +
                             Field("dilation", c.dilation) + (bias ? "}" : " bias_term: false }");
    const Subject subject(
        text, {RandomTensor({Draw(1, 2), c.group * Draw(1, 2), Draw(5, 7), Draw(5, 7)})});
    CheckForward(subject, ReferenceConvolution(subject.bottoms[0], subject.parameters[0],
                                               bias ? &subject.parameters[1] : nullptr,
                                               subject.description.tops[0].shape, c));
    CheckGradients(subject);
  }
}

// A place in so many directions that counts up like a number.
bool Advance(Shape& place, const Shape& extents) {
  for (size_t i = place.size(); i-- > 0;) {
    if (++place[i] < extents[i]) return true;
    place[i] = 0;
  }
  return false;
}

at::Tensor At(const at::Tensor& x, const Shape& place) {
  at::Tensor found = x;
  for (const int64_t index : place) found = found[index];
  return found;
}

// Scatters, as Caffe defines Deconvolution: each value of the bottom adds the kernel to the top,
// with all fields meant for the convolution that goes the other way. Any number of directions.
at::Tensor ReferenceDeconvolution(const at::Tensor& x, const at::Tensor& w, const Shape& top_shape,
                                  int64_t group, int64_t stride, int64_t pad, int64_t dilation) {
  at::Tensor top = at::zeros(top_shape, at::kDouble);
  const Shape in(x.sizes().begin() + 2, x.sizes().end());
  const Shape kernel(w.sizes().begin() + 2, w.sizes().end());
  const int64_t inputs_per_group = x.size(1) / group;
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t i = 0; i < x.size(1); ++i)
      for (int64_t o = 0; o < w.size(1); ++o) {
        Shape from(in.size(), 0);
        do {
          Shape k(in.size(), 0);
          do {
            Shape to = {n, i / inputs_per_group * w.size(1) + o};
            bool inside = true;
            for (size_t d = 0; d < in.size(); ++d) {
              to.push_back(from[d] * stride - pad + k[d] * dilation);
              inside = inside && to.back() >= 0 && to.back() < top_shape[2 + d];
            }
            if (inside) At(top, to).add_(At(x[n][i], from) * At(w[i][o], k));
          } while (Advance(k, kernel));
        } while (Advance(from, in));
      }
  return top;
}

TEST(TorchLayersTest, DeconvolutionScattersTheKernel) {
  for (const size_t directions : {2u, 1u, 3u, 2u}) {
    const int64_t group = Draw(1, 2);
    const int64_t stride = Draw(1, 3);
    const int64_t pad = Draw(0, 1);
    const int64_t dilation = Draw(1, 2);
    Shape shape = {Draw(1, 2), group * Draw(1, 2)};
    for (size_t i = 0; i < directions; ++i) shape.push_back(Draw(2, 3));
    const Subject subject("type: 'Deconvolution' convolution_param { kernel_size: 3" +
                              Field("num_output", 2 * group) + Field("group", group) +
                              Field("stride", stride) + Field("pad", pad) +
                              Field("dilation", dilation) + "}",
                          {RandomTensor(shape)});
    Shape spread(directions + 2, 1);
    spread[1] = -1;
    CheckForward(subject, ReferenceDeconvolution(subject.bottoms[0], subject.parameters[0],
                                                 subject.description.tops[0].shape, group, stride,
                                                 pad, dilation) +
                              subject.parameters[1].view(spread));
  }
}

// What Caffe computes: the weights as a matrix times the columns of Im2col.
TEST(TorchLayersTest, ConvolutionInAnyDirectionsIsAProductWithIm2col) {
  for (const Shape& shape : {Shape{2, 3, 7}, Shape{2, 2, 5, 6}, Shape{1, 2, 4, 3, 5}}) {
    const std::string window = " kernel_size: 3 stride: 2 pad: 1 dilation: 1 ";
    const Subject convolution(
        "type: 'Convolution' convolution_param { num_output: 4 bias_term: false" + window + "}",
        {RandomTensor(shape)});
    const Subject columns("type: 'Im2col' convolution_param {" + window + "}", convolution.bottoms);
    const at::Tensor matrix = columns.Forward()[0].flatten(2);
    const at::Tensor weights = convolution.parameters[0].flatten(1);
    const Shape& top = convolution.description.tops[0].shape;
    CheckForward(convolution, at::matmul(weights, matrix).reshape(top));
  }
}

TEST(TorchLayersTest, Im2colPutsThePlacesOfTheKernelIntoChannels) {
  const Subject subject(
      "type: 'Im2col' convolution_param { kernel_h: 2 kernel_w: 3 stride: 2 pad: 1 dilation: 2 }",
      {RandomTensor({2, 3, 6, 7})});
  const auto in = subject.bottoms[0].accessor<double, 4>();
  at::Tensor expected = at::zeros(subject.description.tops[0].shape, at::kDouble);
  auto out = expected.accessor<double, 4>();
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t c = 0; c < 18; ++c)
      for (int64_t y = 0; y < expected.size(2); ++y)
        for (int64_t z = 0; z < expected.size(3); ++z) {
          const int64_t h = 2 * y - 1 + 2 * (c / 3 % 2);
          const int64_t w = 2 * z - 1 + 2 * (c % 3);
          if (h >= 0 && w >= 0 && h < 6 && w < 7) out[n][c][y][z] = in[n][c / 6][h][w];
        }
  CheckForward(subject, expected);
}

TEST(TorchLayersTest, ConvolutionOfSeveralBottomsAndALaterAxis) {
  const at::Tensor a = RandomTensor({2, 3, 5, 5});
  const at::Tensor b = RandomTensor({2, 3, 5, 5});
  const std::string fields = " convolution_param { num_output: 2 kernel_size: 3";
  const Subject both("type: 'Convolution' top: 'x' top: 'y'" + fields + "}", {a, b});
  Subject single("type: 'Convolution'" + fields + "}", {b});
  single.parameters = both.parameters;
  ExpectClose(both.Forward()[1], single.Forward()[0], 1e-12, "the second top");

  Subject stacked("type: 'Convolution'" + fields + " axis: 2 }", {at::stack({a, b})});
  stacked.parameters = both.parameters;
  ExpectClose(stacked.Forward()[0], at::stack(both.Forward()), 1e-12, "samples along two axes");
}

at::Tensor ReferenceInnerProduct(const Subject& subject, int axis, bool transpose) {
  const Shape& shape = subject.description.bottoms[0].shape;
  const int64_t rows = Count(shape, 0, axis);
  const int64_t inputs = Count(shape) / rows;
  const int64_t outputs = subject.description.tops[0].shape.back();
  at::Tensor top = at::empty({rows, outputs}, at::kDouble);
  const double* x = subject.bottoms[0].data_ptr<double>();
  const double* w = subject.parameters[0].data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < outputs; ++o) {
      double sum =
          subject.parameters.size() > 1 ? subject.parameters[1].data_ptr<double>()[o] : 0.0;
      for (int64_t i = 0; i < inputs; ++i) {
        sum += x[r * inputs + i] * (transpose ? w[i * outputs + o] : w[o * inputs + i]);
      }
      top.data_ptr<double>()[r * outputs + o] = sum;
    }
  return top.view(subject.description.tops[0].shape);
}

TEST(TorchLayersTest, InnerProduct) {
  for (int trial = 0; trial < 20; ++trial) {
    const bool transpose = trial % 2 == 1;
    const int64_t axis = Draw(1, 3);
    const std::string text = "type: 'InnerProduct' inner_product_param {" +
                             Field("num_output", Draw(1, 5)) + Field("axis", axis) +
                             (transpose ? " transpose: true" : "") +
                             (Draw(0, 1) == 1 ? " bias_term: false }" : "}");
    const Subject subject(text, {RandomTensor({Draw(1, 4), Draw(1, 3), Draw(1, 3), Draw(1, 3)})});
    CheckForward(subject, ReferenceInnerProduct(subject, static_cast<int>(axis), transpose));
    CheckGradients(subject);
  }
}

TEST(TorchLayersTest, InnerProductFactorsMultiplyToTheDenseGradient) {
  for (int trial = 0; trial < 10; ++trial) {
    const Shape shape = {Draw(1, 40), Draw(1, 5), Draw(1, 6), Draw(1, 6)};
    const Subject subject(
        "type: 'InnerProduct' inner_product_param {" + Field("num_output", Draw(1, 30)) + "}",
        {RandomTensor(shape)});
    const Tensors top_gradient = {RandomTensor(subject.description.tops[0].shape)};
    const Tensors dense = subject.Backward(top_gradient, at::kFloat);

    const auto layer = subject.Make();
    layer->Forward({}, Subject::To(subject.bottoms, at::kFloat),
                   Subject::To(subject.parameters, at::kFloat));
    ParameterGradients factors;
    factors.u = at::full({shape[0], top_gradient[0].size(1)}, 77.0F);
    factors.v = at::full({shape[0], Count(shape) / shape[0]}, 77.0F);
    const Tensors bottom = layer->Backward(Subject::To(top_gradient, at::kFloat), factors);

    ExpectClose(at::mm(factors.u.t(), factors.v), dense[1].to(at::kDouble), 1e-6, "weights");
    ExpectClose(factors.u.sum(0), dense[2].to(at::kDouble), 1e-6, "bias");
    EXPECT_TRUE(at::equal(bottom[0], dense[0]));
  }
}

// --- Recurrent layers. ---

// As one long batch, its fifths in five passes, of which the last four are of two iterations: each
// goes on where the one before stopped, how often either is computed, and when a worker goes back
// to either iteration's begin. One that does not follow starts from zero.
TEST(TorchLayersTest, RecurrentLayersCarryTheirStatesToTheNextPass) {
  for (const std::string type : {"LSTM", "RNN"}) {
    const std::string text = "type: '" + type + "' recurrent_param { num_output: 3 }";
    const at::Tensor x = RandomTensor({15, 2, 4});
    const at::Tensor goes_on = at::ones({15, 2}, at::kDouble);
    const Subject whole(text, {x, goes_on}, {true, false});
    Subject fifth(text, {x.narrow(0, 0, 3), goes_on.narrow(0, 0, 3)}, {true, false});
    fifth.parameters = whole.parameters;
    fifth.passes = 2;
    const auto layer = fifth.Make();
    const at::Tensor expected = whole.Forward()[0];
    for (const int64_t pass : {7, 7, 8, 8, 9, 10, 8, 9, 10, 11, 8, 9, 10, 11, 10, 11, 0}) {
      const int64_t first = pass == 0 ? 0 : 3 * (pass - 7);
      const at::Tensor top =
          layer->Forward({.iteration = pass, .data = nullptr, .later = nullptr},
                         {x.narrow(0, first, 3), goes_on.narrow(0, 0, 3)}, fifth.parameters)[0];
      ExpectClose(top, expected.narrow(0, first, 3), 1e-12,
                  type + ", pass " + std::to_string(pass));
    }
  }
}

// Streams know nothing of one another: the mean gradient of workers that have some of them each is
// that of one worker that has them all.
TEST(TorchLayersTest, RecurrentLayersComputeStreamsOnTheirOwn) {
  for (const std::string type : {"LSTM", "RNN"}) {
    const std::string text = "type: '" + type + "' recurrent_param { num_output: 3 }";
    const Tensors bottoms = {RandomTensor({5, 4, 2}), RandomLabels({5, 4}, 2),
                             RandomTensor({4, 3})};
    const std::vector<bool> needs = {true, false, true};
    const Subject whole(text, bottoms, needs);
    const at::Tensor weights = RandomTensor({5, 4, 3});
    const Tensors expected = whole.Backward({weights}, at::kDouble);
    Tensors sums(whole.parameters.size());
    for (const int64_t first : {0, 2}) {
      Subject part(text,
                   {bottoms[0].narrow(1, first, 2), bottoms[1].narrow(1, first, 2),
                    bottoms[2].narrow(0, first, 2)},
                   needs);
      part.parameters = whole.parameters;
      const Tensors found = part.Backward({weights.narrow(1, first, 2)}, at::kDouble);
      ExpectClose(found[0], expected[0].narrow(1, first, 2), 1e-12, "gradient at x");
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] = sums[i].defined() ? sums[i] + found[3 + i] : found[3 + i];
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      ExpectClose(sums[i], expected[3 + i], 1e-12, "parameter " + std::to_string(i));
    }
  }
}

TEST(TorchLayersTest, SequenceIndicatorsHaveNoGradient) {
  const Subject subject("type: 'LSTM' recurrent_param { num_output: 3 }",
                        {RandomTensor({5, 4, 2}), RandomLabels({5, 4}, 2)});
  EXPECT_THAT(
      [&] { subject.Make(); },
      ThrowsMessage<ConfigError>(HasSubstr("there is no gradient for sequence indicators")));
}

// --- Pooling and LRN. ---

struct Pool {
  bool max;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

at::Tensor ReferencePooling(const at::Tensor& x, const Shape& top_shape, const Pool& p) {
  at::Tensor top = at::empty(top_shape, at::kDouble);
  const auto in = x.accessor<double, 4>();
  auto out = top.accessor<double, 4>();
  for (int64_t n = 0; n < top_shape[0]; ++n)
    for (int64_t c = 0; c < top_shape[1]; ++c)
      for (int64_t y = 0; y < top_shape[2]; ++y)
        for (int64_t z = 0; z < top_shape[3]; ++z) {
          double max = -std::numeric_limits<double>::infinity();
          double sum = 0;
          int64_t places = 0;  // of the window inside the padded image
          for (int64_t h = y * p.stride_h - p.pad_h; h < y * p.stride_h - p.pad_h + p.kernel_h; ++h)
            for (int64_t w = z * p.stride_w - p.pad_w; w < z * p.stride_w - p.pad_w + p.kernel_w;
                 ++w) {
              if (h >= x.size(2) + p.pad_h || w >= x.size(3) + p.pad_w) continue;
              ++places;
              if (h < 0 || w < 0 || h >= x.size(2) || w >= x.size(3)) continue;
              max = std::max(max, in[n][c][h][w]);
              sum += in[n][c][h][w];
            }
          out[n][c][y][z] = p.max ? max : sum / static_cast<double>(places);
        }
  return top;
}

std::string PoolingText(const Pool& p, const std::string& more = "") {
  return std::string("type: 'Pooling' pooling_param { pool: ") + (p.max ? "MAX" : "AVE") +
         Field("kernel_h", p.kernel_h) + Field("kernel_w", p.kernel_w) +
         Field("stride_h", p.stride_h) + Field("stride_w", p.stride_w) + Field("pad_h", p.pad_h) +
         Field("pad_w", p.pad_w) + more + "}";
}

// All the cases of rounding: windows that fit evenly and not, padding more and less than half a
// kernel, strides above the kernel where that leaves no window outside.
TEST(TorchLayersTest, Pooling) {
  int wide = 0;
  int uneven = 0;
  for (int trial = 0; trial < 120; ++trial) {
    Pool p{trial % 2 == 0, Draw(1, 4), Draw(1, 4), Draw(1, 4), Draw(1, 4), 0, 0};
    p.pad_h = Draw(0, p.kernel_h - 1);
    p.pad_w = Draw(0, p.kernel_w - 1);
    const bool floor = Draw(0, 3) == 0;
    if (!floor) {
      p.stride_h = std::min(p.stride_h, p.kernel_h);
      p.stride_w = std::min(p.stride_w, p.kernel_w);
    }
    const Subject subject(PoolingText(p, floor ? " round_mode: FLOOR" : ""),
                          {RandomTensor({Draw(1, 2), Draw(1, 3), Draw(4, 7), Draw(4, 7)})});
    wide += 2 * p.pad_h > p.kernel_h || 2 * p.pad_w > p.kernel_w;
    uneven += (subject.bottoms[0].size(2) + 2 * p.pad_h - p.kernel_h) % p.stride_h != 0;
    CheckForward(subject,
                 ReferencePooling(subject.bottoms[0], subject.description.tops[0].shape, p));
    CheckGradients(subject);
  }
  EXPECT_GT(wide, 10);
  EXPECT_GT(uneven, 20);
}

// 5 wide, kernel 2, stride 2: Caffe makes three windows, the last of one column, whose mean is over
// that column only. Padded by one, windows start at -1, 1, 3; a fourth at 5 would be in the
// padding.
TEST(TorchLayersTest, PoolingRoundsUpAndClips) {
  const at::Tensor row = at::arange(1, 6, at::kDouble).view({1, 1, 1, 5});
  const Subject mean(PoolingText({false, 1, 2, 1, 2, 0, 0}), {row});
  EXPECT_TRUE(at::equal(mean.Forward()[0].flatten(), at::tensor({1.5, 3.5, 5.0}, at::kDouble)));
  const Subject padded(PoolingText({false, 1, 2, 1, 2, 0, 1}), {row});
  EXPECT_TRUE(at::equal(padded.Forward()[0].flatten(), at::tensor({0.5, 2.5, 4.5}, at::kDouble)));
}

TEST(TorchLayersTest, MaximaOfEqualValuesSendTheGradientToTheFirst) {
  const Subject subject(PoolingText({true, 2, 2, 2, 2, 0, 0}),
                        {at::ones({1, 16, 4, 4}, at::kDouble)});
  const Tensors gradients = subject.Backward({at::ones({1, 16, 2, 2}, at::kDouble)}, at::kFloat);
  at::Tensor expected = at::zeros({1, 16, 4, 4}, at::kDouble);
  expected.slice(2, 0, 4, 2).slice(3, 0, 4, 2).fill_(1);
  ExpectClose(gradients[0], expected, 0, "gradient");
}

// A kernel that is larger than the image makes one window: Caffe rounds up, and clips it.
TEST(TorchLayersTest, PoolingWithAKernelLargerThanTheImage) {
  for (const bool max : {false, true}) {
    const Pool p{max, 5, 6, 2, 3, 0, 0};
    const Subject subject(PoolingText(p), {RandomTensor({2, 3, 4, 4})});
    ASSERT_EQ(subject.description.tops[0].shape, (Shape{2, 3, 1, 1}));
    CheckForward(subject, ReferencePooling(subject.bottoms[0], {2, 3, 1, 1}, p));
    CheckGradients(subject);
  }
}

TEST(TorchLayersTest, TheSecondTopOfMaxPoolingIsWhereTheMaximaAre) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t pad = Draw(0, 2);
    const Subject subject("type: 'Pooling' top: 'a' top: 'mask' pooling_param { stride: 2" +
                              Field("kernel_size", Draw(std::max<int64_t>(pad + 1, 2), 4)) +
                              Field("pad", pad) + "}",
                          {RandomTensor({2, 3, Draw(4, 7), Draw(4, 7)})});
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      const Tensors tops = subject.Forward(type);
      EXPECT_EQ(tops[1].scalar_type(), type);
      const at::Tensor values =
          subject.bottoms[0].flatten(2).gather(2, tops[1].flatten(2).to(at::kLong));
      ExpectClose(values, tops[0].flatten(2).to(at::kDouble), 1e-6, "values at the places");
    }
  }
}

TEST(TorchLayersTest, StochasticPoolingInTraining) {
  // Of the values 1, 2 and 5 of a window, each is chosen as often as it is large.
  const at::Tensor image =
      at::tensor({1.0, 2.0, 0.0, 5.0}, at::kDouble).view({1, 1, 2, 2}).repeat({1, 1, 60, 60});
  const std::string text =
      "type: 'Pooling' pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }";
  const Subject subject(text, {image});
  const auto layer = subject.Make();
  const at::Tensor first = layer->Forward({.iteration = 0}, subject.bottoms, {})[0];
  EXPECT_EQ(first.eq(0).sum().item<int64_t>(), 0);
  for (const double value : {1.0, 2.0, 5.0}) {
    // Of 3600, within four standard deviations.
    EXPECT_NEAR(first.eq(value).to(at::kDouble).mean().item<double>(), value / 8, 0.034);
  }
  EXPECT_TRUE(at::equal(layer->Forward({.iteration = 0}, subject.bottoms, {})[0], first));
  EXPECT_FALSE(at::equal(layer->Forward({.iteration = 1}, subject.bottoms, {})[0], first));
}

TEST(TorchLayersTest, StochasticPoolingOfNegativeValuesTakesOneOfThem) {
  const Subject subject("type: 'Pooling' pooling_param { pool: STOCHASTIC kernel_size: 2 }",
                        {at::full({1, 1, 8, 8}, -1.0, at::kDouble)});
  EXPECT_TRUE(subject.Forward()[0].eq(-1).all().item<bool>());
}

TEST(TorchLayersTest, StochasticPoolingInTestsIsTheExpectation) {
  at::Tensor image = RandomTensor({2, 2, 5, 6}).clamp_min(0);
  image[0][0].zero_();
  const Subject subject(
      "type: 'Pooling' pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 }", {image}, {},
      caffe::TEST);
  const Pool p{false, 3, 3, 2, 2, 0, 0};
  const Shape& top = subject.description.tops[0].shape;
  const at::Tensor squares = ReferencePooling(image * image, top, p);
  const at::Tensor sums = ReferencePooling(image, top, p);
  CheckForward(subject, at::where(sums.gt(0), squares / sums, 0.0));
}

TEST(TorchLayersTest, GlobalPooling) {
  for (const bool max : {false, true}) {
    const Shape shape = {2, 3, Draw(1, 5), Draw(1, 5)};
    const Subject subject(
        std::string("type: 'Pooling' pooling_param { global_pooling: true pool: ") +
            (max ? "MAX }" : "AVE }"),
        {RandomTensor(shape)});
    CheckForward(subject, ReferencePooling(subject.bottoms[0], {2, 3, 1, 1},
                                           {max, shape[2], shape[3], 1, 1, 0, 0}));
    CheckGradients(subject);
  }
}

// The squares' sum over the neighborhood of a place, and the number of places in a full one.
at::Tensor ReferenceLrn(const at::Tensor& x, bool across, int64_t size, double alpha, double beta,
                        double k) {
  at::Tensor top = at::empty_like(x);
  const auto in = x.accessor<double, 4>();
  auto out = top.accessor<double, 4>();
  const int64_t reach = size / 2;
  const int64_t channel_reach = across ? reach : 0;
  const int64_t image_reach = across ? 0 : reach;
  const auto places = static_cast<double>(across ? size : size * size);
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t c = 0; c < x.size(1); ++c)
      for (int64_t y = 0; y < x.size(2); ++y)
        for (int64_t z = 0; z < x.size(3); ++z) {
          double sum = 0;
          for (int64_t i = c - channel_reach; i <= c + channel_reach; ++i)
            for (int64_t h = y - image_reach; h <= y + image_reach; ++h)
              for (int64_t w = z - image_reach; w <= z + image_reach; ++w) {
                if (i < 0 || h < 0 || w < 0) continue;
                if (i >= x.size(1) || h >= x.size(2) || w >= x.size(3)) continue;
                sum += in[n][i][h][w] * in[n][i][h][w];
              }
          out[n][c][y][z] = in[n][c][y][z] * std::pow(k + alpha * sum / places, -beta);
        }
  return top;
}

TEST(TorchLayersTest, Lrn) {
  for (int trial = 0; trial < 16; ++trial) {
    const bool across = trial % 2 == 0;
    const int64_t size = 2 * Draw(0, 3) + 1;
    const Subject subject("type: 'LRN' lrn_param {" + Field("local_size", size) +
                              " alpha: 0.5 beta: 0.75" +
                              (across ? " k: 2 }" : " norm_region: WITHIN_CHANNEL }"),
                          {RandomTensor({Draw(1, 2), Draw(1, 7), Draw(3, 5), Draw(3, 5)})});
    CheckForward(subject,
                 ReferenceLrn(subject.bottoms[0], across, size, 0.5, 0.75, across ? 2 : 1));
    CheckGradients(subject);
  }
}
}  // namespace
}  // namespace poseidon
