// The front door's Model and SessionOptions: what reaches the job, and what is refused with which
// words.
#include "client/front/model_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "client/front/session_options.h"
#include "core/error.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string RefusalOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

std::string RefusalOf(const Model& model) {
  return RefusalOf([&] { ToModelSpec(model); });
}

// A model of one layer that works.
Model OneLayer() { return {.layers = {{.name = "fc", .blobs = {{.shape = {2, 3}}}}}}; }

TEST(ModelMessage, BlobsThatSayNothingLearn) {
  const ModelSpec spec = ToModelSpec(OneLayer());
  ASSERT_EQ(spec.layers_size(), 1);
  const BlobSpec& blob = spec.layers(0).blobs(0);
  EXPECT_THAT(blob.shape(), ElementsAre(2, 3));
  EXPECT_EQ(blob.lr_mult(), 1);
  EXPECT_EQ(blob.decay_mult(), 1);
  EXPECT_FALSE(spec.layers(0).has_inner_product());
  EXPECT_EQ(spec.update_rule().type(), "SGD");
  EXPECT_EQ(spec.batch(), 1);
}

TEST(ModelMessage, TimesAreFinite) {
  for (const double milliseconds :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Model model = OneLayer();
    model.layers[0].forward_ms = milliseconds;
    EXPECT_THAT(RefusalOf(model), HasSubstr("layer \"fc\" of the model has a forward_ms or "));
    model.layers[0].forward_ms = 1;
    model.layers[0].backward_ms = milliseconds;
    EXPECT_THAT(RefusalOf(model), HasSubstr("negative or no number"));
  }
}

TEST(ModelMessage, BlobsOfAModelThatServersUpdateHaveTheirGroups) {
  Model model = OneLayer();
  model.layers[0].blobs[0].group = 3;
  model.optimizer.type = OptimizerType::kPyTorchAdamW;
  const ModelSpec spec = ToModelSpec(model);
  EXPECT_EQ(spec.layers(0).blobs(0).group(), 3);
  EXPECT_EQ(spec.update_rule().type(), "TorchAdamW");
}

TEST(ModelMessage, AModelThatLearnsNothingIsRefused) {
  Model model = OneLayer();
  model.layers[0].blobs.push_back({.shape = {2}, .lr_mult = 0});
  ToModelSpec(model);  // the weights learn
  model.layers[0].blobs[0].lr_mult = 0;
  EXPECT_THAT(RefusalOf(model), HasSubstr("no blob of the model learns"));
  // Nobody reads them.
  for (const OptimizerType type :
       {OptimizerType::kMeanGradient, OptimizerType::kPyTorchSgd, OptimizerType::kPyTorchAdamW}) {
    model.optimizer.type = type;
    EXPECT_NO_THROW(ToModelSpec(model)) << static_cast<int>(type);
  }
}

TEST(ModelMessage, EveryFieldArrives) {
  const ModelSpec spec = ToModelSpec({
      .name = "net",
      .layers = {{.name = "fc",
                  .blobs = {{.shape = {2, 3}}, {.shape = {2}, .lr_mult = 2, .decay_mult = 0}},
                  .inner_product = {{.outputs = 2, .inputs = 3, .rows = 4}},
                  .type = "InnerProduct",
                  .multiply_adds = 6,
                  .forward_ms = 1,
                  .backward_ms = 2}},
      .optimizer = {.type = OptimizerType::kAdam,
                    .base_lr = 0.5F,
                    .lr_policy = LearningRatePolicy::kMultistep,
                    .gamma = 0.1F,
                    .stepvalue = {10, 20},
                    .momentum = 0.9F,
                    .momentum2 = 0.99F,
                    .delta = 1e-6F,
                    .weight_decay = 0.005F,
                    .weight_decay_norm = WeightDecayNorm::kL1,
                    .warmup_iterations = 5,
                    .warmup_base_lr = 0.25F},
      .batch = 4,
      .iterations = 100,
  });
  EXPECT_EQ(spec.name(), "net");
  EXPECT_EQ(spec.batch(), 4);
  EXPECT_EQ(spec.iterations(), 100);
  const LayerSpec& layer = spec.layers(0);
  EXPECT_EQ(layer.type(), "InnerProduct");
  EXPECT_EQ(layer.blobs(1).lr_mult(), 2);
  EXPECT_EQ(layer.blobs(1).decay_mult(), 0);
  EXPECT_EQ(layer.inner_product().rows(), 4);
  EXPECT_EQ(layer.multiply_adds(), 6);
  EXPECT_EQ(layer.backward_ms(), 2);
  const UpdateRuleSpec& rule = spec.update_rule();
  EXPECT_EQ(rule.type(), "Adam");
  EXPECT_EQ(rule.base_lr(), 0.5F);
  EXPECT_EQ(rule.lr_policy(), "multistep");
  EXPECT_EQ(rule.gamma(), 0.1F);
  EXPECT_THAT(rule.stepvalue(), ElementsAre(10, 20));
  EXPECT_EQ(rule.momentum(), 0.9F);
  EXPECT_EQ(rule.momentum2(), 0.99F);
  EXPECT_EQ(rule.delta(), 1e-6F);
  EXPECT_EQ(rule.weight_decay(), 0.005F);
  EXPECT_EQ(rule.regularization_type(), "L1");
  EXPECT_EQ(rule.warmup_iterations(), 5);
  EXPECT_EQ(rule.warmup_base_lr(), 0.25F);
}

TEST(ModelMessage, EveryTypeAndPolicyIsOneThatUpdateRulesKnow) {
  for (int type = 0; type <= static_cast<int>(OptimizerType::kMeanGradient); ++type) {
    Model model = OneLayer();
    model.optimizer.type = static_cast<OptimizerType>(type);
    EXPECT_NO_THROW(ToModelSpec(model)) << type;
  }
  for (int policy = 0; policy <= static_cast<int>(LearningRatePolicy::kSigmoid); ++policy) {
    Model model = OneLayer();
    model.optimizer.lr_policy = static_cast<LearningRatePolicy>(policy);
    model.optimizer.gamma = 0.5F;
    model.optimizer.power = 1;
    model.optimizer.stepsize = 10;
    model.optimizer.stepvalue = {10};
    model.optimizer.max_iter = 100;
    EXPECT_NO_THROW(ToModelSpec(model)) << policy;
  }
}

TEST(ModelMessage, TheFloatsOfAllLayersCanBeCounted) {
  constexpr int64_t kMost = int64_t{1} << 50;
  Model model = OneLayer();
  model.layers[0].blobs = {{.shape = {kMost / 2}}, {.shape = {kMost / 4}}};
  model.layers.push_back({.name = "last", .blobs = {{.shape = {kMost / 4}}}});
  ToModelSpec(model);
  model.layers[1].blobs.push_back({.shape = {1}});
  EXPECT_EQ(
      RefusalOf(model),
      "layer \"last\" of the model has too many floats; all layers of a model may have at most "
      "1125899906842624 together");
  model = OneLayer();
  model.layers[0].inner_product = InnerProduct{.outputs = 2, .inputs = 3, .rows = kMost / 3};
  ToModelSpec(model);
  ++model.layers[0].inner_product->rows;
  EXPECT_THAT(RefusalOf(model), HasSubstr("may be at most 1125899906842624"));
}

// The wire would not take them, when the session can only be destroyed any more.
TEST(ModelMessage, NamesAreUtf8) {
  Model model = OneLayer();
  model.name = "caf\xe9";
  EXPECT_EQ(RefusalOf(model),
            "the name of the model \"caf\\xe9\" is no UTF-8; give it one that is");
  model = OneLayer();
  model.layers[0].name = "caf\xe9";
  EXPECT_THAT(RefusalOf(model), HasSubstr("the name of the layer \"caf\\xe9\""));
  model = OneLayer();
  model.layers[0].type = "caf\xe9";
  EXPECT_THAT(RefusalOf(model), HasSubstr("the type of the layer \"caf\\xe9\""));
}

TEST(ModelMessage, WhatCantWorkIsRefusedByName) {
  const auto with_layer = [](const Layer& layer) { return Model{.layers = {layer}}; };
  EXPECT_THAT(RefusalOf(Model{}), HasSubstr("no layers"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "", .blobs = {{.shape = {1}}}})),
              HasSubstr("has no name"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc", .blobs = {}})), HasSubstr("\"fc\""));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc", .blobs = {{.shape = {2, 0}}}})),
              HasSubstr("the extent 0"));
  const int64_t huge = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc", .blobs = {{.shape = {huge, 3}}}})),
              HasSubstr("too many floats"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc", .blobs = {{.shape = {1}, .lr_mult = -1}}})),
              HasSubstr("multiplier of -1"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc", .blobs = {{.shape = {1}, .group = -1}}})),
              HasSubstr("a blob of group -1"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc",
                                    .blobs = {{.shape = {2, 3}}},
                                    .inner_product = {{.outputs = 3, .inputs = 3, .rows = 1}}})),
              HasSubstr("3 x 3, but its first blob has 6 floats"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc",
                                    .blobs = {{.shape = {2, 3}}, {.shape = {3}}},
                                    .inner_product = {{.outputs = 2, .inputs = 3, .rows = 1}}})),
              HasSubstr("its bias has 3 floats"));
  EXPECT_THAT(RefusalOf(with_layer({.name = "fc",
                                    .blobs = {{.shape = {2, 3}}},
                                    .inner_product = {{.outputs = 2, .inputs = 3, .rows = huge}}})),
              HasSubstr("2 x 3 with " + std::to_string(huge) + " rows; rows times outputs, and"));
  Model twice = OneLayer();
  twice.layers.push_back(twice.layers[0]);
  EXPECT_THAT(RefusalOf(twice), HasSubstr("there twice"));
  Model no_batch = OneLayer();
  no_batch.batch = -1;
  EXPECT_THAT(RefusalOf(no_batch), HasSubstr("batch is -1; it must be 1 or more, or 0 where"));
  Model no_sum = OneLayer();
  no_sum.batch = int64_t{1} << 31;
  EXPECT_THAT(RefusalOf(no_sum), HasSubstr("batch is 2147483648; it may be at most 2147483647"));
  Model no_steps = OneLayer();
  no_steps.optimizer.lr_policy = LearningRatePolicy::kStep;
  no_steps.optimizer.gamma = 0.1F;
  EXPECT_THAT(RefusalOf(no_steps), HasSubstr("stepsize"));
}

TEST(SessionOptionsTest, AreReadFromTheEnvironment) {
  ASSERT_EQ(setenv("POSEIDON_JOB", "/a/job.prototxt", 1), 0);
  ASSERT_EQ(setenv("POSEIDON_RANK", "3", 1), 0);
  EXPECT_EQ(SessionOptions::FromEnvironment().job, "/a/job.prototxt");
  EXPECT_EQ(SessionOptions::FromEnvironment().rank, 3);
  EXPECT_EQ(SessionOptions::FromEnvironment().host, "");
  ASSERT_EQ(setenv("POSEIDON_HOST", "10.0.0.7", 1), 0);
  EXPECT_EQ(SessionOptions::FromEnvironment().host, "10.0.0.7");
  unsetenv("POSEIDON_HOST");
  for (const char* rank : {"-1", "3x", "99999999999"}) {
    ASSERT_EQ(setenv("POSEIDON_RANK", rank, 1), 0);
    EXPECT_THAT(RefusalOf([] { SessionOptions::FromEnvironment(); }),
                HasSubstr("POSEIDON_RANK is \"" + std::string(rank)));
  }
  ASSERT_EQ(unsetenv("POSEIDON_JOB"), 0);
  EXPECT_THAT(RefusalOf([] { SessionOptions::FromEnvironment(); }),
              HasSubstr("POSEIDON_JOB is not set; start the program by `poseidon run"));
  unsetenv("POSEIDON_RANK");
}

TEST(SessionOptionsTest, WhomTheProcessReplacesIsInTheEnvironment) {
  ASSERT_EQ(setenv("POSEIDON_JOB", "/a/job.prototxt", 1), 0);
  ASSERT_EQ(setenv("POSEIDON_RANK", "0", 1), 0);
  EXPECT_EQ(SessionOptions::FromEnvironment().incarnation, 0U);
  EXPECT_EQ(SessionOptions::FromEnvironment().replaces, 0U);
  ASSERT_EQ(setenv("POSEIDON_INCARNATION", "18446744073709551615", 1), 0);
  ASSERT_EQ(setenv("POSEIDON_REPLACES", "7", 1), 0);
  EXPECT_EQ(SessionOptions::FromEnvironment().incarnation, UINT64_MAX);
  EXPECT_EQ(SessionOptions::FromEnvironment().replaces, 7U);
  ASSERT_EQ(setenv("POSEIDON_REPLACES", "worker 1", 1), 0);
  EXPECT_THAT(RefusalOf([] { SessionOptions::FromEnvironment(); }),
              HasSubstr("POSEIDON_REPLACES is \"worker 1\""));
  for (const char* name :
       {"POSEIDON_JOB", "POSEIDON_RANK", "POSEIDON_INCARNATION", "POSEIDON_REPLACES"}) {
    unsetenv(name);
  }
}

TEST(SessionOptionsTest, AProgramThatGoesBackIsToldWhereItCannot) {
  const auto options_of = [](const std::string& recovery) {
    return ToWorkerSessionOptions(
        {.job_text = "cluster { workers: 3 } recovery { " + recovery + " }", .goes_back = true});
  };
  EXPECT_TRUE(options_of("mode: REPLACE").goes_back);
  for (const char* recovery : {"mode: SHRINK", "mode: REPLACE otherwise: SHRINK"}) {
    EXPECT_THAT(RefusalOf([&] { options_of(recovery); }),
                HasSubstr("a program of yours reads its data itself"));
  }
}

TEST(SessionOptionsTest, AJobIsAPathOrAText) {
  const WorkerSessionOptions options = ToWorkerSessionOptions(
      {.job_text = "name: \"mine\" cluster { workers: 3 }", .rank = 2, .host = "10.0.0.7"});
  EXPECT_EQ(options.job.cluster().workers(), 3);
  EXPECT_EQ(options.wanted_rank, 2);
  EXPECT_EQ(options.host, "10.0.0.7");
  EXPECT_NE(options.job_fingerprint, 0U);
  EXPECT_THAT(RefusalOf([] { ToWorkerSessionOptions({}); }), HasSubstr("either the path"));
  EXPECT_THAT(RefusalOf([] { ToWorkerSessionOptions({.job = "a", .job_text = "b"}); }),
              HasSubstr("either the path"));
  EXPECT_THAT(RefusalOf([] { ToWorkerSessionOptions({.job_text = "cluster {\n workrs: 3 }"}); }),
              HasSubstr("job_text:2:"));
}

}  // namespace
}  // namespace poseidon
