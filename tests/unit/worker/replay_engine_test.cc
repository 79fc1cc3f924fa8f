#include "worker/engine/replay_engine.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "client/pace/compute_disturbance.h"
#include "client/pace/compute_spread.h"
#include "core/error.h"
#include "proto/replay_model.h"
#include "worker/engine/layer_measurement.h"
#include "worker/replay_config.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Clock = std::chrono::steady_clock;

Replay Parse(const std::string& text) {
  Replay replay;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &replay)) << text;
  return replay;
}

const char* const kThreeLayers = R"(
  layers { name: 'conv' parameters: 200000 forward_ms: 5 backward_ms: 10 }
  layers { name: 'pool' type: 'Pooling' parameters: 0 forward_ms: 2 backward_ms: 3 }
  layers { name: 'fc' type: 'InnerProduct' inputs: 300 outputs: 40 forward_ms: 1 backward_ms: 2 }
  batch: 8)";

struct Gradients {
  std::vector<float> conv = std::vector<float>(200000);
  std::vector<float> u = std::vector<float>(8 * 40);
  std::vector<float> v = std::vector<float>(8 * 300);
};

void Iterate(ReplayEngine& engine, int64_t iteration, Gradients& gradients) {
  engine.LoadBatch(iteration);
  for (int step = 0; step < engine.steps(); ++step) engine.Forward(step);
  engine.Backward(2, {.dense = {}, .u = gradients.u, .v = gradients.v});
  engine.Backward(1, {});
  engine.Backward(0, {.dense = gradients.conv, .u = {}, .v = {}});
}

TEST(ReplayEngineTest, DescribesTheLayersWithParameters) {
  const ReplayEngine engine(Parse(kThreeLayers), 0, 1);
  EXPECT_EQ(engine.batch(), 8);
  EXPECT_EQ(engine.steps(), 3);
  EXPECT_EQ(engine.step_name(1), "pool");
  EXPECT_EQ(engine.layer_of_step(0), 0);
  EXPECT_EQ(engine.layer_of_step(1), std::nullopt);
  EXPECT_EQ(engine.layer_of_step(2), 1);
  ASSERT_EQ(engine.model().layers_size(), 2);
  EXPECT_EQ(engine.model().batch(), 8);
  const LayerSpec& conv = engine.model().layers(0);
  ASSERT_EQ(conv.blobs_size(), 1);
  EXPECT_EQ(conv.blobs(0).shape(0), 200000);
  EXPECT_FALSE(conv.has_inner_product());
  const LayerSpec& fc = engine.model().layers(1);
  ASSERT_EQ(fc.blobs_size(), 2);
  EXPECT_EQ(fc.blobs(0).shape(0), 40);
  EXPECT_EQ(fc.blobs(0).shape(1), 300);
  EXPECT_EQ(fc.blobs(1).shape(0), 40);
  EXPECT_EQ(fc.inner_product().outputs(), 40);
  EXPECT_EQ(fc.inner_product().inputs(), 300);
  EXPECT_EQ(fc.inner_product().rows(), 8);
}

TEST(ReplayEngineTest, ValuesDependOnRankAndIterationOnly) {
  ReplayEngine engine(Parse(kThreeLayers), 3, 1);
  Gradients in_turn[2];
  for (int64_t iteration = 0; iteration < 5; ++iteration) {
    Gradients& kept = in_turn[iteration % 2];
    Iterate(engine, iteration, kept);
    // An engine that has written nothing before.
    ReplayEngine fresh(Parse(kThreeLayers), 3, 99);
    Gradients anew;
    Iterate(fresh, iteration, anew);
    EXPECT_EQ(kept.conv, anew.conv) << "iteration " << iteration;
    EXPECT_EQ(kept.u, anew.u) << "iteration " << iteration;
    EXPECT_EQ(kept.v, anew.v) << "iteration " << iteration;
  }
  Gradients& kept = in_turn[0];
  const Gradients before = kept;
  Iterate(engine, 3, kept);
  EXPECT_NE(kept.conv, before.conv);
  EXPECT_NE(kept.u, before.u);
  EXPECT_NE(kept.v, before.v);
  ReplayEngine other(Parse(kThreeLayers), 4, 1);
  Gradients others;
  Iterate(other, 3, others);
  int same = 0;
  for (size_t i = 0; i < kept.conv.size(); ++i) same += kept.conv[i] == others.conv[i];
  EXPECT_LT(same, 100) << "workers' gradients must differ";
  for (const float value : kept.conv) ASSERT_LE(std::abs(value), 1e-3F);
}

TEST(ReplayEngineTest, FillsParametersFromTheSeed) {
  std::vector<std::vector<float>> filled;
  for (const uint64_t seed : {5, 5, 6}) {
    ReplayEngine engine(Parse(kThreeLayers), static_cast<int>(filled.size()), seed);
    std::vector<float> conv(200000);
    std::vector<float> fc(300 * 40 + 40);
    engine.BindParameters(0, conv);
    engine.BindParameters(1, fc);
    engine.FillParameters();
    EXPECT_NE(fc.front(), fc.back());
    filled.push_back(conv);
  }
  EXPECT_EQ(filled[0], filled[1]);
  EXPECT_NE(filled[0], filled[2]);
}

// Shortest of some runs, since other programs may take the processor for a while.
TEST(ReplayEngineTest, AnIterationLastsItsRecordedTimesAndTheCallers) {
  ReplayEngine engine(Parse(kThreeLayers), 0, 1);
  Gradients gradients;
  Iterate(engine, 0, gradients);  // writes the gradients whole
  double plain = 1e9;
  double with_wait = 1e9;
  for (int64_t run = 1; run < 8; ++run) {
    const auto begin = Clock::now();
    Iterate(engine, run, gradients);
    const std::chrono::duration<double, std::milli> lasted = Clock::now() - begin;
    EXPECT_GE(lasted.count(), 23);  // 5 + 2 + 1 + 2 + 3 + 10
    plain = std::min(plain, lasted.count());

    const auto wait_begin = Clock::now();
    engine.LoadBatch(run);
    engine.Forward(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // parameters arrive late
    engine.Forward(1);
    engine.Forward(2);
    const std::chrono::duration<double, std::milli> waited = Clock::now() - wait_begin;
    EXPECT_GE(waited.count(), 28);
    with_wait = std::min(with_wait, waited.count());
  }
  EXPECT_LT(plain, 33);
  EXPECT_LT(with_wait, 45);
}

TEST(ReplayEngineTest, ASlowWorkerTakesLongerAndDeclaresTheSame) {
  ReplayEngine slow(Parse(kThreeLayers), 0, 1, 2.5);
  const ReplayEngine other(Parse(kThreeLayers), 0, 1);
  EXPECT_EQ(slow.model().ShortDebugString(), other.model().ShortDebugString());
  Gradients gradients;
  const auto begin = Clock::now();
  Iterate(slow, 0, gradients);
  const std::chrono::duration<double, std::milli> lasted = Clock::now() - begin;
  EXPECT_GE(lasted.count(), 2.5 * 23);
}

// It sleeps what a simulated worker of the same rank computes.
TEST(ReplayEngineTest, VariesAsSimulatedWorkersDo) {
  Disturbance spread;
  spread.set_iteration_spread(0.9);
  spread.set_layer_spread(0.9);
  ComputeDisturbance disturbance(spread);
  constexpr int kRank = 5;
  ReplayEngine engine(Parse(kThreeLayers), kRank, 1, 1, disturbance);
  Gradients gradients;
  const double passes[] = {5e-3, 2e-3, 1e-3, 2e-3, 3e-3, 10e-3};
  for (int64_t iteration = 0; iteration < 8; ++iteration) {
    disturbance.Begin(kRank, iteration);
    Duration expected{};
    for (int p = 0; p < 6; ++p) expected += disturbance.Of(p, Seconds(passes[p]));
    // What else the machine does only adds, so the shortest of several attempts counts.
    constexpr int kAttempts = 20;
    const Duration most = expected + std::chrono::milliseconds(10);
    Duration least = Duration::max();
    for (int attempt = 0; attempt < kAttempts && least >= most; ++attempt) {
      const auto begin = Clock::now();
      Iterate(engine, iteration, gradients);
      least = std::min<Duration>(least, Clock::now() - begin);
    }
    EXPECT_GE(least, expected - std::chrono::microseconds(1));
    EXPECT_LT(least, most) << iteration;
  }
}

TEST(PlanEngineTest, AReplayIsSlowedByAFactorInBounds) {
  JobConfig config;
  *config.job.mutable_training()->mutable_replay() = Parse(kThreeLayers);
  config.job.mutable_training()->set_engine(Training::REPLAY);
  EXPECT_EQ(ReadReplayConfig(config, 2)->Make(0, 0, nullptr)->batch(), 8);
  for (const double factor : {0.0, -1.0, 1e7, std::nan("")}) {
    EXPECT_THAT([&] { ReadReplayConfig(config, factor); },
                ThrowsMessage<ConfigError>(HasSubstr("it must be between 0.001 and 1000")));
  }
}

TEST(LayerMeasurementTest, AProfileHasTheFactorsThatTheEngineHas) {
  const ReplayEngine engine(Parse(R"(
    layers { name: 'conv' type: 'Convolution' parameters: 200 }
    layers { name: 'pool' type: 'Pooling' }
    layers { name: 'tokens' type: 'InnerProduct' inputs: 30 outputs: 4 rows_per_sample: 16 }
    layers { name: 'lean' type: 'InnerProduct' inputs: 4 outputs: 5 bias: false }
    batch: 8)"),
                            0, 1);
  LayerMeasurement measured;
  for (const char* name : {"conv", "pool", "tokens", "lean"}) {
    measured.steps.push_back({.name = name, .type = "", .forward_ms = 2, .backward_ms = 3});
  }
  const Job profile = ToProfile("profile", engine, measured);
  const ModelSpec model = DescribeReplay(profile.training().replay()).model;
  ModelSpec expected = engine.model();
  for (LayerSpec& layer : *expected.mutable_layers()) {
    const int steps = layer.name() == "conv" ? 2 : 1;  // with what is above and learns nothing
    layer.set_forward_ms(2 * steps);
    layer.set_backward_ms(3 * steps);
  }
  EXPECT_EQ(model.DebugString(), expected.DebugString());
}

// As in Caffe's nets, where many have several ReLUs "relu".
TEST(LayerMeasurementTest, AProfileOfLayersWithOneNameCanBeRead) {
  const ReplayEngine engine(Parse(kThreeLayers), 0, 1);
  LayerMeasurement measured;
  measured.steps.assign(3, {.name = "same", .type = "", .forward_ms = 1, .backward_ms = 1});
  const Replay replay = ToProfile("profile", engine, measured).training().replay();
  EXPECT_EQ(replay.layers(0).name(), "same");
  EXPECT_EQ(replay.layers(1).name(), "same (2)");
  EXPECT_EQ(replay.layers(2).name(), "same (3)");
  EXPECT_NO_THROW(ValidateReplay(replay));
}

// As in plans of a solver.
TEST(LayerMeasurementTest, TheProfileOfAnIterationWithSeveralPassesIsOfAllTheirSamples) {
  const ReplayEngine engine(Parse(kThreeLayers), 0, 1);
  LayerMeasurement measured;
  for (const char* name : {"conv", "pool", "fc"}) {
    measured.steps.push_back({.name = name, .type = "", .forward_ms = 2, .backward_ms = 3});
  }
  Disturbance& disturbance = measured.disturbance.emplace();
  disturbance.set_iteration_spread(0.04);
  disturbance.set_layer_spread(0.06);
  const Job profile = ToProfile("profile", engine, measured, 4);
  const ModelSpec model = DescribeReplay(profile.training().replay()).model;
  Replay whole = Parse(kThreeLayers);
  whole.set_batch(4 * 8);
  ModelSpec expected = ReplayEngine(whole, 0, 1).model();
  for (LayerSpec& layer : *expected.mutable_layers()) {
    const int steps = layer.name() == "conv" ? 2 : 1;  // with what is above and learns nothing
    layer.set_forward_ms(2 * 4 * steps);
    layer.set_backward_ms(3 * 4 * steps);
  }
  EXPECT_EQ(model.DebugString(), expected.DebugString());
  // Each pass varies by itself.
  EXPECT_DOUBLE_EQ(profile.cluster().disturbance().iteration_spread(), 0.02);
  EXPECT_DOUBLE_EQ(profile.cluster().disturbance().layer_spread(), 0.03);
  disturbance.set_stall_interval_seconds(2);
  disturbance.set_stall_seconds(0.5);
  const Disturbance stalled = ToProfile("profile", engine, measured, 4).cluster().disturbance();
  EXPECT_EQ(stalled.stall_interval_seconds(), 2);
  EXPECT_EQ(stalled.stall_seconds(), 0.5);
}

// Simulated machines and replays take the stalls off the profile's times again, to draw them.
TEST(LayerMeasurementTest, AProfileTakesWhatTheMeasuredPassesTookWithTheirStalls) {
  // Of three layers, forward and backward.
  const std::vector<double> seconds = {5e-3, 2e-3, 1e-3, 2e-3, 3e-3, 10e-3};
  std::vector<std::vector<double>> iterations(20, seconds);
  for (int i = 0; i < 20; i += 4) iterations[i][i % 6] += 60e-3;
  double taken = 0;
  for (const std::vector<double>& iteration : iterations) {
    for (const double pass : iteration) taken += pass;
  }
  LayerMeasurement measured;
  measured.steps = {{"conv", "Convolution", 5, 10}, {"pool", "Pooling", 2, 3}, {"fc", "", 1, 2}};
  measured.disturbance = DisturbanceOf(iterations);
  const Job profile = ToProfile("profile", ReplayEngine(Parse(kThreeLayers), 0, 1), measured);
  double milliseconds = 0;
  for (const ReplayLayer& layer : profile.training().replay().layers()) {
    milliseconds += layer.forward_ms() + layer.backward_ms();
  }
  EXPECT_NEAR(milliseconds, 1000 * taken / 20, 1e-9);
  EXPECT_NEAR(milliseconds / StallFactor(profile.cluster().disturbance()), 23, 1e-9);
}

// At which gradients are rebuilt from factors, instead of at a GPU's rate.
TEST(LayerMeasurementTest, AProfileSaysHowFastInnerProductsAreComputed) {
  LayerMeasurement measured;
  measured.steps = {{"conv", "Convolution", 5, 10}, {"pool", "Pooling", 2, 3}, {"fc", "", 1, 2}};
  const ReplayEngine engine(Parse(kThreeLayers), 0, 1);
  const double rate = 2.0 * 8 * 300 * 40 / 1e-3;
  EXPECT_DOUBLE_EQ(ToProfile("profile", engine, measured).cluster().flops(), rate);
  EXPECT_DOUBLE_EQ(ToProfile("profile", engine, measured, 4).cluster().flops(), rate);
  measured.steps[2].forward_ms = 0;
  EXPECT_FALSE(ToProfile("profile", engine, measured).cluster().has_flops());
  const ReplayEngine conv(Parse("layers { name: 'conv' parameters: 9 } batch: 8"), 0, 1);
  EXPECT_FALSE(ToProfile("profile", conv, measured).cluster().has_flops());
}

struct BadReplay {
  const char* text;
  const char* message;
};

TEST(ReplayEngineTest, RefusesBadProfiles) {
  const BadReplay cases[] = {
      {"", "replay: layers is empty; expected at least one"},
      {"layers { parameters: 1 }", "replay: a layer has no name"},
      {"layers { name: 'a' parameters: 1 } layers { name: 'a' }",
       "layer \"a\": another layer has the same name"},
      {"layers { name: 'a' parameters: -1 }",
       "layer \"a\": parameters is -1; expected 0 to 2^31 - 1 floats"},
      {"layers { name: 'a' parameters: 1 forward_ms: -2 }",
       "layer \"a\": forward_ms is -2.000000; expected 0 to 3600000 milliseconds"},
      {"layers { name: 'a' parameters: 1 backward_ms: nan }", "layer \"a\": backward_ms is nan"},
      {"layers { name: 'a' type: 'InnerProduct' outputs: 3 }",
       "layer \"a\": an InnerProduct layer needs inputs of at least 1"},
      {"layers { name: 'a' type: 'InnerProduct' inputs: 3 outputs: 0 }",
       "layer \"a\": an InnerProduct layer needs outputs of at least 1"},
      {"layers { name: 'a' type: 'InnerProduct' inputs: 99999 outputs: 99999 }",
       "layer \"a\": inputs x outputs is more than 2^31 - 1 floats"},
      {"layers { name: 'a' type: 'InnerProduct' inputs: 3 outputs: 2 parameters: 8 }",
       "layer \"a\": parameters of an InnerProduct layer follow from inputs and outputs"},
      {"layers { name: 'a' inputs: 3 }",
       "layer \"a\": inputs, outputs, rows_per_sample and bias are for type \"InnerProduct\" only, "
       "this is "
       "\"Convolution\""},
      {"layers { name: 'a' }", "no layer has parameters"},
      {"layers { name: 'a' parameters: 1 } batch: 0", "batch is 0; expected 1 or more samples"},
      {"layers { name: 'a' parameters: 1 } iterations: 0", "iterations is 0; expected 1 or more"},
  };
  for (const BadReplay& bad : cases) {
    EXPECT_THAT([&] { ReplayEngine(Parse(bad.text), 0, 1); },
                ThrowsMessage<ConfigError>(HasSubstr(bad.message)))
        << bad.text;
  }
}

}  // namespace
}  // namespace poseidon
