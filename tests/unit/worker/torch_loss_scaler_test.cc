// Loss scaling: the scaler against a model of it in plain arithmetic, and whole nets with it.
#include "worker/torch/torch_loss_scaler.h"

#include <ATen/ATen.h>
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "caffe_adapter/net/filler.h"
#include "core/error.h"
#include "worker/torch/torch_net.h"

namespace poseidon {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::ThrowsMessage;

using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Floats ToFloats(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten().contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

// 1 to 40 floats, some of them not finite if `bad`.
at::Tensor RandomGradient(std::mt19937& random, bool bad) {
  at::Tensor gradient = at::empty({static_cast<int64_t>(1 + random() % 40)});
  std::normal_distribution<float> value(0, 1e4F);
  float* const floats = gradient.data_ptr<float>();
  for (int64_t i = 0; i < gradient.numel(); ++i) floats[i] = value(random);
  const float wrong[] = {kInfinity, -kInfinity, std::nanf("")};
  for (uint64_t i = 0; bad && i <= random() % 3; ++i) {
    floats[random() % gradient.numel()] = wrong[random() % 3];
  }
  return gradient;
}

// What the scale is to be, in plain arithmetic.
struct Model {
  void EndPass(bool overflow) {
    ++clean;
    if (overflow) {
      scale = std::max(1.0F, scale / 2);
      clean = 0;
    } else if (clean == interval) {
      scale = std::min(scale * 2, std::ldexp(1.0F, 24));
      clean = 0;
    }
  }

  float scale;
  int64_t interval;
  int64_t clean = 0;
};

TEST(LossScalerTest, FollowsItsRulesThroughRandomOverflows) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const int layers = 1 + static_cast<int>(random() % 5);
    Model model{.scale = std::ldexp(1.0F, static_cast<int>(random() % 25)),
                .interval = 1 + static_cast<int64_t>(random() % 4)};
    LossScaler scaler(std::vector<std::string>(layers, "layer"),
                      {.initial_scale = model.scale, .growth_interval = model.interval}, at::kCPU);
    // Rounds with many overflows come down to the least scale, others up to the most.
    const uint64_t one_in = 2 + random() % 20;
    std::vector<int64_t> overflows(layers);
    for (int pass = 0; pass < 60; ++pass) {
      ASSERT_EQ(scaler.scale().item<float>(), model.scale);
      bool any = false;
      for (int layer = 0; layer < layers; ++layer) {
        const bool bad = random() % one_in == 0;
        const at::Tensor gradient = RandomGradient(random, bad);
        Floats expected = ToFloats(gradient);
        for (float& value : expected) value = bad ? 0 : value / model.scale;
        scaler.BeginBackward();
        scaler.Unscale(layer, gradient);
        if (bad && model.scale == 1) {
          EXPECT_THAT(ToFloats(gradient), Each(IsNan())) << "the net's own fault must show";
        } else {
          EXPECT_EQ(ToFloats(gradient), expected);
        }
        any |= bad;
        overflows[layer] += bad ? 1 : 0;
      }
      scaler.EndPass();
      model.EndPass(any);
      EXPECT_EQ(scaler.Read().overflows, overflows);
    }
  }
}

TEST(LossScalerTest, APassWithoutGradientsDoesNotCount) {
  LossScaler scaler({"layer"}, {.initial_scale = 8, .growth_interval = 1}, at::kCPU);
  scaler.EndPass();
  EXPECT_EQ(scaler.Read().scale, 8);
  scaler.BeginBackward();
  scaler.Unscale(0, at::ones({3}));
  scaler.EndPass();
  EXPECT_EQ(scaler.Read().scale, 16);
}

TEST(LossScalerTest, RefusesOptionsThatMeanNothing) {
  const auto make = [](float initial, int64_t interval) {
    LossScaler({"layer"}, {.initial_scale = initial, .growth_interval = interval}, at::kCPU);
  };
  for (const float initial : {0.0F, -1.0F, std::nanf(""), kInfinity}) {
    EXPECT_THAT([&] { make(initial, 1); },
                ThrowsMessage<ConfigError>(HasSubstr("initial loss scale must be above 0")));
  }
  EXPECT_THAT([&] { make(1, 0); },
              ThrowsMessage<ConfigError>(HasSubstr("growth interval must be at least 1")));
}

// --- Whole nets, in float32, where a scale that is a power of two changes no bit. ---

// Three InnerProducts, whose first two share weights if `shared`. Their gradients are `factor`
// times what they would be without the Power, the third one's are not.
std::string NetText(double factor, bool shared) {
  const auto layer = [](const std::string& name, const std::string& bottom, double deviation,
                        const std::string& param) {
    return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
           name + "' " + param + " inner_product_param { num_output: 3 weight_filler {" +
           " type: 'gaussian' std: " + std::to_string(deviation) + " } } }\n";
  };
  const std::string param = shared ? "param { name: 'w' } param {}" : "";
  return "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
         " shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } data_filler { type: 'gaussian' } } }\n" +
         layer("a", "x", 0.03, param) + "layer { name: 't' type: 'TanH' bottom: 'a' top: 't' }\n" +
         layer("b", "t", 0.03, param) +
         "layer { name: 'p' type: 'Power' bottom: 'b' top: 'p' power_param { scale: " +
         std::to_string(factor) + " } }\n" + layer("c", "p", 0.5, "") +
         "layer { name: 'l' type: 'EuclideanLoss' bottom: 'c' bottom: 'y' top: 'l' }\n";
}

class Trained {
 public:
  explicit Trained(const std::string& text, std::optional<LossScaling> scaling)
      : net_(Describe(text), {},
             {.device = at::kCPU, .precision = Precision::kFloat32, .loss_scaling = scaling}) {
    for (const LayerDescription& layer : net_.description().layers) {
      parameters_.emplace_back(layer.owned_floats());
      FillLayer(layer, 3, parameters_.back());
      net_.BindParameters(static_cast<int>(parameters_.size()) - 1, parameters_.back());
    }
  }

  int Step(const std::string& layer) const { return *FindLayer(net_.description(), layer); }

  // Of the batch of iteration 0, by step; of InnerProducts the factors if those are wanted.
  void Iterate(bool factors) {
    net_.LoadBatch(0, 0);
    const int steps = static_cast<int>(parameters_.size());
    for (int step = 0; step < steps; ++step) net_.Forward(step);
    gradients.assign(steps, {});
    v.assign(steps, {});
    for (int step = steps - 1; step >= 0; --step) {
      GradientBuffers target;
      if (factors && !parameters_[step].empty()) {
        gradients[step].resize(4 * 3, 77);
        v[step].resize(4 * 3, 77);
        target.u = gradients[step];
        target.v = v[step];
      } else {
        gradients[step].resize(parameters_[step].size(), 77);
        target.dense = gradients[step];
      }
      net_.Backward(step, target);
    }
    loss = net_.loss();
  }

  std::vector<Floats> gradients;  // or u
  std::vector<Floats> v;
  float loss = 0;

 private:
  static NetDescription Describe(const std::string& text) {
    caffe::NetParameter net;
    CHECK(google::protobuf::TextFormat::ParseFromString(text, &net));
    return DescribeNet(net, caffe::TRAIN);
  }

  TorchNet net_;
  std::vector<Floats> parameters_;  // by step
};

TEST(LossScalingTest, APowerOfTwoChangesNoBit) {
  for (const bool shared : {false, true}) {
    for (const bool factors : {false, true}) {
      if (shared && factors) continue;  // layers that share have none
      Trained plain(NetText(1, shared), std::nullopt);
      Trained scaled(NetText(1, shared), LossScaling{.initial_scale = 0x1p20F});
      for (int pass = 0; pass < 3; ++pass) {
        plain.Iterate(factors);
        scaled.Iterate(factors);
        EXPECT_EQ(scaled.gradients, plain.gradients);
        EXPECT_EQ(scaled.v, plain.v);
        EXPECT_EQ(scaled.loss, plain.loss) << "the loss itself is not scaled";
      }
    }
  }
}

// At first the largest scale there is: layers "a" and "b", a thousand times as sensitive as "c",
// overflow until it has been halved often enough. "c" must never notice.
TEST(LossScalingTest, AnOverflowZeroesTheLayersWhereItIs) {
  for (const bool shared : {false, true}) {
    for (const bool factors : {false, true}) {
      if (shared && factors) continue;
      Trained plain(NetText(1000, shared), std::nullopt);
      plain.Iterate(factors);
      Trained scaled(NetText(1000, shared), LossScaling{.initial_scale = 0x1p126F});
      int zeros = 0;
      for (int pass = 0; pass < 40; ++pass) {
        scaled.Iterate(factors);
        EXPECT_EQ(scaled.v, plain.v) << "no gradient";
        const int c = plain.Step("c");
        EXPECT_EQ(scaled.gradients[c], plain.gradients[c]);
        for (const char* name : {"a", "b"}) {
          const Floats& gradient = scaled.gradients[plain.Step(name)];
          const Floats& expected = plain.gradients[plain.Step(name)];
          const bool zero = gradient == Floats(gradient.size());
          EXPECT_TRUE(zero || gradient == expected) << name << " in pass " << pass;
          zeros += zero ? 1 : 0;
        }
        if (pass == 0) {
          EXPECT_EQ(zeros, 2) << "the scale was meant to be too large for both";
        }
      }
      EXPECT_EQ(scaled.gradients, plain.gradients);
      EXPECT_GT(zeros, 4);
      EXPECT_LT(zeros, 2 * 20);
    }
  }
}

}  // namespace
}  // namespace poseidon
