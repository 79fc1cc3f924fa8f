// Every layer's forward pass against a direct implementation in loops, and its gradients, in double
// precision, against finite differences; on random small shapes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "core/error.h"
#include "worker/torch_layer.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// --- Making and running layers. ---

std::mt19937& Generator() {
  static std::mt19937 generator(20170706);
  return generator;
}

int64_t Draw(int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(Generator());
}

// Values in (-2, 2), no two close to each other and none close to 0, in random order: the steps of
// finite differences go over no kink of a maximum.
at::Tensor RandomTensor(const Shape& shape) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  const int64_t count = tensor.numel();
  const double offset = std::uniform_real_distribution<double>(0.25, 0.75)(Generator());
  double* values = tensor.data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    values[i] = 4 * (static_cast<double>(i) + offset) / static_cast<double>(count) - 2;
  }
  std::shuffle(values, values + count, Generator());
  return tensor;
}

at::Tensor RandomLabels(const Shape& shape, int64_t classes) {
  at::Tensor labels = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    labels.data_ptr<double>()[i] = static_cast<double>(Draw(0, classes - 1));
  }
  return labels;
}

// The description of the layer written in `text` (without bottoms) on bottoms of these shapes.
LayerDescription Describe(const std::string& text, const std::vector<Shape>& bottoms,
                          caffe::Phase phase = caffe::TRAIN) {
  caffe::NetParameter net;
  caffe::LayerParameter layer;
  CHECK(google::protobuf::TextFormat::ParseFromString("name: \"it\" " + text, &layer));
  if (layer.top().empty()) layer.add_top("top");
  for (size_t i = 0; i < bottoms.size(); ++i) {
    const std::string name = "bottom" + std::to_string(i);
    caffe::LayerParameter& input = *net.add_layer();
    input.set_name(name);
    input.set_type("Input");
    input.add_top(name);
    *input.mutable_input_param()->add_shape()->mutable_dim() = {bottoms[i].begin(),
                                                                bottoms[i].end()};
    layer.add_bottom(name);
  }
  *net.add_layer() = layer;
  return DescribeNet(net, phase).layers.back();
}

// A layer with what to run it on, in double precision.
struct Subject {
  Subject(const std::string& text, Tensors given_bottoms, std::vector<bool> gradients = {},
          caffe::Phase phase = caffe::TRAIN)
      : bottoms(std::move(given_bottoms)), needs_gradient(std::move(gradients)) {
    std::vector<Shape> shapes;
    for (const at::Tensor& bottom : bottoms) shapes.push_back(bottom.sizes().vec());
    description = Describe(text, shapes, phase);
    needs_gradient.resize(bottoms.size(), true);
    for (const ParameterDescription& parameter : description.parameters) {
      parameters.push_back(RandomTensor(parameter.shape));
    }
  }

  std::unique_ptr<TorchLayer> Make() const {
    return MakeTorchLayer({.description = description,
                           .bottom_needs_gradient = needs_gradient,
                           .parameter_needs_gradient = std::vector<bool>(parameters.size(), true),
                           .seed = 17});
  }

  Tensors Forward(at::ScalarType type = at::kDouble) const {
    return Make()->Forward({}, To(bottoms, type), To(parameters, type));
  }

  // The gradients of sum(tops * top_gradients) at bottoms, then parameters.
  Tensors Backward(const Tensors& top_gradients, at::ScalarType type) const {
    const auto layer = Make();
    layer->Forward({}, To(bottoms, type), To(parameters, type));
    ParameterGradients gradients;
    for (const at::Tensor& parameter : parameters) {
      // What was there before must not matter.
      gradients.blobs.push_back(at::full_like(parameter, 77).to(type));
    }
    Tensors all = layer->Backward(To(top_gradients, type), gradients);
    all.insert(all.end(), gradients.blobs.begin(), gradients.blobs.end());
    return all;
  }

  // Float images also with channels innermost, as the engine has them.
  static Tensors To(const Tensors& tensors, at::ScalarType type) {
    Tensors converted;
    for (const at::Tensor& tensor : tensors) {
      const bool image = type == at::kFloat && tensor.dim() == 4;
      converted.push_back(tensor.to(type).contiguous(image ? at::MemoryFormat::ChannelsLast
                                                           : at::MemoryFormat::Contiguous));
    }
    return converted;
  }

  LayerDescription description;
  Tensors bottoms;
  std::vector<bool> needs_gradient;
  Tensors parameters;
};

void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double error = (actual.to(at::kDouble) - expected).abs().max().item<double>();
  const double scale = 1 + expected.abs().max().item<double>();
  EXPECT_LE(error, tolerance * scale) << what;
}

// Analytic gradients against central differences of sum(tops * weights), both in double; and those
// in float against those in double.
void CheckGradients(const Subject& subject) {
  SCOPED_TRACE(subject.description.parameter.ShortDebugString());
  Tensors weights;
  for (const at::Tensor& top : subject.Forward())
    weights.push_back(RandomTensor(top.sizes().vec()));
  const auto objective = [&] {
    double sum = 0;
    const Tensors tops = subject.Forward();
    for (size_t i = 0; i < tops.size(); ++i) sum += (tops[i] * weights[i]).sum().item<double>();
    return sum;
  };
  const Tensors gradients = subject.Backward(weights, at::kDouble);
  const Tensors in_float = subject.Backward(weights, at::kFloat);
  Tensors variables = subject.bottoms;
  variables.insert(variables.end(), subject.parameters.begin(), subject.parameters.end());
  for (size_t i = 0; i < variables.size(); ++i) {
    if (i < subject.bottoms.size() && !subject.needs_gradient[i]) {
      EXPECT_FALSE(gradients[i].defined()) << "bottom " << i << " needs no gradient";
      continue;
    }
    constexpr double kStep = 1e-5;
    at::Tensor numeric = at::empty_like(variables[i]);
    for (int64_t j = 0; j < variables[i].numel(); ++j) {
      double& value = variables[i].data_ptr<double>()[j];
      const double before = std::exchange(value, value + kStep);
      const double above = objective();
      value = before - kStep;
      numeric.data_ptr<double>()[j] = (above - objective()) / (2 * kStep);
      value = before;
    }
    ExpectClose(gradients[i], numeric, 1e-6, "gradient " + std::to_string(i));
    ExpectClose(in_float[i], gradients[i], 1e-5, "float gradient " + std::to_string(i));
  }
}

// The first top, in double and in float.
void CheckForward(const Subject& subject, const at::Tensor& expected) {
  SCOPED_TRACE(subject.description.parameter.ShortDebugString());
  EXPECT_EQ(expected.sizes().vec(), subject.description.tops[0].shape) << "the reference is wrong";
  ExpectClose(subject.Forward()[0], expected, 1e-12, "double");
  ExpectClose(subject.Forward(at::kFloat)[0], expected, 1e-5, "float");
}

std::string Field(const std::string& name, int64_t value) {
  return " " + name + ": " + std::to_string(value);
}

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

TEST(TorchLayersTest, PoolingRefusesWindowsOutsideOfTheImage) {
  const Subject subject(PoolingText({true, 1, 1, 4, 4, 0, 0}), {RandomTensor({1, 1, 4, 4})});
  EXPECT_THAT([&] { subject.Make(); },
              ThrowsMessage<ConfigError>(HasSubstr("layer \"it\" (Pooling): the last window is "
                                                   "outside of the image, 1 x 1 x 4 x 4")));
}

// The squares' sum over the neighbourhood of a place, and the number of places in a full one.
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

// --- Blobs of any shape. ---

template <typename Function>
at::Tensor Map(const at::Tensor& x, Function function) {
  at::Tensor result = x.clone();
  for (int64_t i = 0; i < x.numel(); ++i) {
    result.data_ptr<double>()[i] = function(x.data_ptr<double>()[i]);
  }
  return result;
}

TEST(TorchLayersTest, Elementwise) {
  const Tensors x = {RandomTensor({2, 3, 4, 5})};
  const Subject relu("type: 'ReLU'", x);
  CheckForward(relu, Map(x[0], [](double v) { return std::max(v, 0.0); }));
  CheckGradients(relu);
  const Subject leaky("type: 'ReLU' relu_param { negative_slope: 0.25 }", x);
  CheckForward(leaky, Map(x[0], [](double v) { return v > 0 ? v : 0.25 * v; }));
  CheckGradients(leaky);
  const Subject sigmoid("type: 'Sigmoid'", x);
  CheckForward(sigmoid, Map(x[0], [](double v) { return 1 / (1 + std::exp(-v)); }));
  CheckGradients(sigmoid);
  const Subject tanh("type: 'TanH'", x);
  CheckForward(tanh, Map(x[0], [](double v) { return std::tanh(v); }));
  CheckGradients(tanh);
}

TEST(TorchLayersTest, Dropout) {
  const std::string text = "type: 'Dropout' dropout_param { dropout_ratio: 0.4 }";
  const Subject subject(text, {at::ones({100, 100}, at::kDouble)});
  CheckGradients(Subject(text, {RandomTensor({3, 4})}));
  const auto layer = subject.Make();
  const Tensors parameters;
  const at::Tensor first = layer->Forward({.iteration = 0}, subject.bottoms, parameters)[0];
  const at::Tensor second = layer->Forward({.iteration = 1}, subject.bottoms, parameters)[0];
  const at::Tensor again = layer->Forward({.iteration = 0}, subject.bottoms, parameters)[0];
  EXPECT_TRUE(at::equal(first, again)) << "an iteration's mask must be repeatable";
  // Of two masks that keep 60%, 48% of the places differ.
  EXPECT_NEAR(first.ne(second).to(at::kDouble).mean().item<double>(), 0.48, 0.03);
  const at::Tensor dropped = first.eq(0);
  EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), 0.4, 0.03);
  ExpectClose(first.masked_select(dropped.logical_not()).mean(),
              at::scalar_tensor(1 / 0.6, at::kDouble), 1e-6, "kept values are scaled");

  const Subject test(text, subject.bottoms, {}, caffe::TEST);
  EXPECT_TRUE(at::equal(test.Forward()[0], test.bottoms[0]));
}

TEST(TorchLayersTest, Softmax) {
  const Tensors x = {RandomTensor({3, 4, 2, 2})};
  const Subject subject("type: 'Softmax'", x);
  const at::Tensor powers = Map(x[0], [](double v) { return std::exp(v); });
  CheckForward(subject, powers / powers.sum({1}, true));
  CheckGradients(subject);
}

TEST(TorchLayersTest, ConcatAndFlattenAndSplit) {
  const Tensors two = {RandomTensor({2, 3, 4, 2}), RandomTensor({2, 1, 4, 2})};
  const Subject concat("type: 'Concat'", two);
  ExpectClose(concat.Forward()[0].narrow(1, 0, 3), two[0], 0, "first");
  ExpectClose(concat.Forward()[0].narrow(1, 3, 1), two[1], 0, "second");
  CheckGradients(concat);
  const Subject flatten("type: 'Flatten'", {two[0]});
  CheckForward(flatten, two[0].view({2, 24}));
  CheckGradients(flatten);
  const Subject split("type: 'Split' top: 'a' top: 'b'", {two[0]});
  CheckForward(split, two[0]);
  CheckGradients(split);
}

TEST(TorchLayersTest, Eltwise) {
  const Tensors x = {RandomTensor({2, 3}), RandomTensor({2, 3}), RandomTensor({2, 3})};
  const Subject sum("type: 'Eltwise' eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 }", x);
  CheckForward(sum, x[0] - 2 * x[1] + 0.5 * x[2]);
  CheckGradients(sum);
  const Subject product("type: 'Eltwise' eltwise_param { operation: PROD }", x);
  CheckForward(product, x[0] * x[1] * x[2]);
  CheckGradients(product);
  const Subject max("type: 'Eltwise' eltwise_param { operation: MAX }", x);
  CheckForward(max, at::maximum(at::maximum(x[0], x[1]), x[2]));
  CheckGradients(max);
}

// --- Losses. ---

struct LossCase {
  std::string parameter;
  int ignore_label;  // -1: none
  double (*normalizer)(int outer, int inner, int valid);
};

TEST(TorchLayersTest, SoftmaxWithLoss) {
  const LossCase cases[] = {
      {"", -1, [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { ignore_label: 2 }", 2, [](int, int, int valid) { return 1.0 * valid; }},
      {"loss_param { ignore_label: 2 normalization: FULL }", 2,
       [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { normalization: BATCH_SIZE }", -1,
       [](int outer, int, int) { return 1.0 * outer; }},
      {"loss_param { normalize: false }", -1, [](int outer, int, int) { return 1.0 * outer; }},
      {"loss_param { normalization: NONE }", -1, [](int, int, int) { return 1.0; }},
  };
  for (const LossCase& loss_case : cases) {
    const Shape shape = {4, 3, 2, 2};
    const Tensors bottoms = {RandomTensor(shape), RandomLabels({4, 1, 2, 2}, 3)};
    const Subject subject("type: 'SoftmaxWithLoss' " + loss_case.parameter, bottoms, {true, false});
    const auto scores = bottoms[0].accessor<double, 4>();
    const auto labels = bottoms[1].accessor<double, 4>();
    double sum = 0;
    int valid = 0;
    for (int64_t n = 0; n < 4; ++n)
      for (int64_t y = 0; y < 2; ++y)
        for (int64_t z = 0; z < 2; ++z) {
          const auto label = static_cast<int64_t>(labels[n][0][y][z]);
          if (label == loss_case.ignore_label) continue;
          double all = 0;
          for (int64_t c = 0; c < 3; ++c) all += std::exp(scores[n][c][y][z]);
          sum -= std::log(std::exp(scores[n][label][y][z]) / all);
          ++valid;
        }
    CheckForward(subject, at::scalar_tensor(sum / loss_case.normalizer(4, 4, valid), at::kDouble));
    CheckGradients(subject);
  }
}

TEST(TorchLayersTest, SoftmaxWithLossGivesProbabilities) {
  const Tensors bottoms = {RandomTensor({4, 3}), RandomLabels({4}, 3)};
  const Subject subject("type: 'SoftmaxWithLoss' top: 'loss' top: 'probabilities'", bottoms,
                        {true, false});
  ExpectClose(subject.Forward()[1], at::softmax(bottoms[0], 1), 1e-12, "probabilities");
  CheckGradients(subject);
}

TEST(TorchLayersTest, LabelsThatAreNoClassAreNamed) {
  const at::Tensor labels = at::tensor({0.0, 2.0, 3.0, 1.0}, at::kDouble);
  for (const std::string type : {"SoftmaxWithLoss", "Accuracy"}) {
    const Subject subject("type: '" + type + "'", {RandomTensor({4, 3}), labels}, {true, false});
    EXPECT_THAT([&] { subject.Forward(); },
                ThrowsMessage<DataError>(HasSubstr("layer \"it\": the label of sample 2 of the "
                                                   "batch is 3; the layer has classes 0 to 2")));
  }
}

TEST(TorchLayersTest, LabelsHaveNoGradient) {
  const Subject subject("type: 'SoftmaxWithLoss'", {RandomTensor({4, 3}), RandomLabels({4}, 3)});
  EXPECT_THAT([&] { subject.Make(); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no gradient for labels")));
}

TEST(TorchLayersTest, Accuracy) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t samples = Draw(1, 6);
    const int64_t classes = Draw(2, 5);
    const int64_t top_k = Draw(1, classes);
    const int64_t ignored = trial % 2 == 0 ? Draw(0, classes - 1) : -1;
    // Few different scores, so that some are equal.
    const at::Tensor scores = RandomLabels({samples, classes, 2}, 3);
    const at::Tensor labels = RandomLabels({samples, 2}, classes);
    const std::string text = "type: 'Accuracy' top: 'all' top: 'by_class' accuracy_param {" +
                             Field("top_k", top_k) +
                             (ignored >= 0 ? Field("ignore_label", ignored) : "") + "}";
    std::vector<double> correct(classes);
    std::vector<double> counted(classes);
    for (int64_t n = 0; n < samples; ++n)
      for (int64_t i = 0; i < 2; ++i) {
        const auto label = static_cast<int64_t>(labels.accessor<double, 2>()[n][i]);
        if (label == ignored) continue;
        const auto row = scores.accessor<double, 3>()[n];
        int64_t others_not_lower = 0;
        for (int64_t c = 0; c < classes; ++c) {
          others_not_lower += c != label && row[c][i] >= row[label][i];
        }
        counted[label] += 1;
        correct[label] += others_not_lower < top_k;
      }
    at::Tensor by_class = at::zeros({classes}, at::kDouble);
    double all_correct = 0;
    double all_counted = 0;
    for (int64_t c = 0; c < classes; ++c) {
      by_class.data_ptr<double>()[c] = correct[c] / std::max(1.0, counted[c]);
      all_correct += correct[c];
      all_counted += counted[c];
    }
    const Subject subject(text, {scores, labels});
    CheckForward(subject, at::scalar_tensor(all_correct / std::max(1.0, all_counted), at::kDouble));
    ExpectClose(subject.Forward()[1], by_class, 1e-12, "by class");
  }
}

TEST(TorchLayersTest, UnknownTypeIsNamed) {
  const Subject subject("type: 'BatchNorm'", {RandomTensor({2, 3})});
  EXPECT_THAT([&] { subject.Make(); }, ThrowsMessage<ConfigError>(HasSubstr(
                                           "layer \"it\" (BatchNorm): this layer type can't "
                                           "be computed; those that can are Data, Acc")));
}

}  // namespace
}  // namespace poseidon
