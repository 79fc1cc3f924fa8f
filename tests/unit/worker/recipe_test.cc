// The parts of the training loop that need no cluster: passes, deferred updates, the job's recipe.
#include "worker/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "proto/text_format.h"
#include "proto/update_rule_message.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PassScheduleTest, CountsWhatAnIterationAtATimeCounts) {
  const PassSchedule schedule(3, {{5, 2}, {9, 7}, {11, 1}});
  int64_t before = 0;
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(schedule.PassesBefore(i), before) << i;
    const int64_t factor = i < 5 ? 1 : i < 9 ? 2 : i < 11 ? 7 : 1;
    EXPECT_EQ(schedule.PassesOf(i), 3 * factor) << i;
    before += schedule.PassesOf(i);
  }
  EXPECT_EQ(schedule.most(), 21);
}

ModelSpec Model(bool deferred) {
  ModelSpec model;
  LayerSpec& layer = *model.add_layers();
  for (const int64_t size : {2, 1}) {
    BlobSpec& blob = *layer.add_blobs();
    if (size == 2) blob.add_shape(1);
    blob.add_shape(size);
    blob.set_lr_mult(1);
    blob.set_decay_mult(1);
  }
  model.set_batch(8);
  UpdateRuleSpec& rule = *model.mutable_update_rule();
  rule.set_type("SGD");
  rule.set_lr_policy("fixed");
  rule.set_base_lr(0.1F);
  rule.set_deferred(deferred);
  return model;
}

TEST(DeferredUpdateTest, ClipsByTheNormOfTheSumOverPasses) {
  const ModelSpec model = Model(true);
  for (const double limit : {1.0, 9.0, 11.0}) {
    DeferredUpdate update(model, {.clip_gradients = limit, .lars = {}});
    std::vector<float> values{1, 1, 1};
    std::vector<float> state{0, 3, 0, 0, 0, 4};  // momentum and gradient in turn: norm 5
    update.Begin(2, [&](int) { return std::span<const float>(state); });
    update.Apply(ToUpdateRule(model.update_rule()), 0, 0, values, state);
    const double scale = std::min(1.0, limit / 10);
    EXPECT_NEAR(values[0], 1 - 0.1 * 3 * scale, 1e-6);
    EXPECT_NEAR(values[2], 1 - 0.1 * 4 * scale, 1e-6);
  }
}

// Caffe computes no gradient of a blob that does not learn. Of a layer that travels as factors, it
// comes with the others'.
TEST(DeferredUpdateTest, TheNormIsThatOfWhatLearns) {
  ModelSpec model = Model(true);
  model.mutable_layers(0)->mutable_blobs(0)->set_lr_mult(0);
  DeferredUpdate update(model, {.clip_gradients = 2, .lars = {}});
  std::vector<float> values{1, 1, 1};
  std::vector<float> state{0, 3, 0, 0, 0, 4};  // a norm of 4 without the first blob
  update.Begin(1, [&](int) { return std::span<const float>(state); });
  update.Apply(ToUpdateRule(model.update_rule()), 0, 0, values, state);
  EXPECT_EQ(values[0], 1);
  EXPECT_FLOAT_EQ(values[2], 1 - 0.1F * 4 * 2 / 4);
}

TEST(DeferredUpdateTest, LarsTrustsLargeWeightsAndLeavesBiasesAlone) {
  ModelSpec model = Model(true);
  model.mutable_update_rule()->set_weight_decay(0.5F);
  Lars lars;
  lars.set_trust_coefficient(0.01);
  lars.set_epsilon(0);
  DeferredUpdate update(model, {.clip_gradients = {}, .lars = lars});
  EXPECT_FALSE(update.needs_all_layers());
  std::vector<float> values{3, 4, 1};
  std::vector<float> state{0, 6, 0, 8, 0, 1};
  update.Begin(1, [&](int) { return std::span<const float>(state); });
  update.Apply(ToUpdateRule(model.update_rule()), 0, 0, values, state);
  // |w| = 5, |g| = 10: the rate times 0.01 * 5 / (10 + 0.5 * 5).
  const double rate = 0.1 * 0.01 * 5 / 12.5;
  EXPECT_NEAR(values[0], 3 - rate * (6 + 0.5 * 3), 1e-6);
  EXPECT_NEAR(values[1], 4 - rate * (8 + 0.5 * 4), 1e-6);
  EXPECT_NEAR(values[2], 1 - 0.1 * (1 + 0.5 * 1), 1e-6);
}

Job JobOf(const std::string& recipe) {
  Job job;
  ParseText("cluster { workers: 4 } training { large_batch { " + recipe + " } }", "job", job);
  return job;
}

TEST(RecipeTest, ScalesTheRateByTheSamplesOfAnIteration) {
  caffe::SolverParameter solver;
  solver.set_iter_size(2);
  ModelSpec model = Model(false);
  ApplyRecipe(JobOf("reference_batch: 16 warmup_iterations: 5"), solver, model);
  // 4 workers x 8 samples x 2 passes are four times 16.
  EXPECT_FLOAT_EQ(model.update_rule().base_lr(), 0.4F);
  EXPECT_FLOAT_EQ(model.update_rule().solver_base_lr(), 0.1F);
  EXPECT_FLOAT_EQ(model.update_rule().warmup_base_lr(), 0.1F);
  EXPECT_FLOAT_EQ(LearningRate(ToUpdateRule(model.update_rule()), 0), 0.1F);
  EXPECT_FALSE(model.update_rule().deferred());
}

TEST(RecipeTest, MakesRoomForTheFactorsOfAllPasses) {
  ModelSpec model = Model(false);
  model.mutable_layers(0)->mutable_inner_product()->set_rows(8);
  ApplyRecipe(JobOf("batch_growth { iteration: 10 factor: 3 }"), caffe::SolverParameter(), model);
  EXPECT_EQ(model.layers(0).inner_product().rows(), 24);
  EXPECT_EQ(model.batch(), 24);
  EXPECT_EQ(model.passes(), 3);
}

TEST(RecipeTest, OffItChangesNothing) {
  ModelSpec model = Model(false);
  const std::string before = model.SerializeAsString();
  ApplyRecipe(JobOf(""), caffe::SolverParameter(), model);
  EXPECT_EQ(model.SerializeAsString(), before);
}

TEST(RecipeTest, MomentumCorrectionNeedsMomentumOfSteps) {
  ModelSpec model = Model(false);
  model.mutable_update_rule()->set_type("Adam");
  EXPECT_THROW(ApplyRecipe(JobOf("momentum_correction: true"), caffe::SolverParameter(), model),
               ConfigError);
}

TEST(RecipeTest, NoIterationsAreLeftAtARateThatHasComeToZero) {
  caffe::SolverParameter solver;
  solver.set_lr_policy("poly");
  solver.set_power(1);
  solver.set_max_iter(100);
  const auto error = [&](int64_t iterations) {
    Job job;
    job.mutable_training()->set_iterations(iterations);
    ModelSpec model = Model(false);
    return MessageOf<ConfigError>([&] { ApplyRecipe(job, solver, model); });
  };
  EXPECT_EQ(error(100), "");
  EXPECT_THAT(error(101), HasSubstr("training.iterations is 101, but with lr_policy \"poly\" the "
                                    "solver's rate comes to 0 at its max_iter, 100"));
  solver.set_power(0);
  EXPECT_EQ(error(101), "") << "the rate stays";
  solver.set_lr_policy("fixed");
  EXPECT_EQ(error(101), "");
}

TEST(RecipeTest, WithoutTestIterNothingIsTested) {
  caffe::SolverParameter solver;
  solver.set_test_interval(5);
  EXPECT_EQ(TrainerOptionsOf(Job(), solver).test_interval, 0);
  solver.add_test_iter(1);
  EXPECT_EQ(TrainerOptionsOf(Job(), solver).test_interval, 5);
}

TEST(RecipeTest, TimeStepsAreNotShuffledWithoutAWord) {
  const auto error = [](const std::string& reader, const std::string& type,
                        const std::string& training) {
    SolverNet train;
    ParseText("layer { name: \"read\" type: \"" + reader +
                  "\" include { phase: TRAIN } } layer { name: \"it\" type: \"" + type + "\" }",
              "net", train.net);
    train.locate = [](const std::string& path) { return Location{path, 0, 0}; };
    Job job;
    ParseText("training { " + training + " }", "job", job);
    return MessageOf<ConfigError>([&] { CheckOrder(job.training(), train); });
  };
  for (const std::string type : {"LSTM", "RNN", "LSTMUnit"}) {
    for (const std::string reader : {"Data", "HDF5Data", "ImageData"}) {
      EXPECT_THAT(error(reader, type, ""),
                  HasSubstr("layer \"it\" (" + type +
                            ") steps through time, and the records of layer \"read\" would be "
                            "shuffled"));
    }
    EXPECT_EQ(error("Data", type, "shuffle: false"), "");
    EXPECT_EQ(error("Data", type, "shuffle: true"), "");
    EXPECT_EQ(error("DummyData", type, ""), "");
  }
  EXPECT_EQ(error("Data", "InnerProduct", ""), "");
}

TEST(RecipeTest, BatchesThatDifferAreNotMadeOne) {
  SolverNet train;
  ParseText(
      "layer { name: 'data' type: 'Data' data_param { batch_size: 16 } } "
      "layer { name: 'few' type: 'DummyData' include { phase: TRAIN stage: 'two' } "
      "        dummy_data_param { shape { dim: 4 } } }",
      "net", train.net);
  train.locate = [](const std::string& path) { return Location{path, 0, 0}; };
  const auto error = [&train](const std::string& training) {
    Job job;
    ParseText("training { " + training + " }", "job", job);
    return MessageOf<ConfigError>([&] { CheckOneWrittenBatch(job.training(), train); });
  };
  EXPECT_EQ(error("batch_per_worker: 8"), "");
  train.state.add_stage("two");
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error("batch_per_worker: 8"),
              HasSubstr("layer \"few\": has 4 samples in a batch, and layer \"data\" has 16, but "
                        "training.batch_per_worker would give all layers the same; leave it out"));
}

TEST(RecipeTest, WeightsOfASolverMayBeAList) {
  caffe::SolverParameter solver;
  solver.add_weights("a.caffemodel, b.caffemodel");
  solver.add_weights("c.caffemodel");
  Job job;
  EXPECT_THAT(TrainerOptionsOf(job, solver).weights,
              ElementsAre("a.caffemodel", "b.caffemodel", "c.caffemodel"));
  job.mutable_training()->add_weights("first.caffemodel ,second.caffemodel");
  EXPECT_THAT(TrainerOptionsOf(job, solver).weights,
              ElementsAre("first.caffemodel", "second.caffemodel"));
}

}  // namespace
}  // namespace poseidon
