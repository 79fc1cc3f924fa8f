// What is found out of a training before anything is started.
#include "cli/jobs/training_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

// Batches of 64 samples, which a layer says again, and `loss` with two bottoms.
Solver SolverOfDummies(const std::string& loss) {
  Solver solver;
  ParseText(R"(
    layer {
      name: "data" type: "DummyData" top: "data" top: "label"
      dummy_data_param { shape { dim: 64 dim: 4 } shape { dim: 64 } }
    }
    layer {
      name: "rows" type: "Reshape" bottom: "data" top: "rows"
      reshape_param { shape { dim: 64 dim: 4 } }
    }
    layer {
      name: "fc" type: "InnerProduct" bottom: "rows" top: "fc"
      inner_product_param { num_output: 3 }
    }
    layer { name: "loss" type: ")" +
                loss + R"(" bottom: "fc" bottom: "label" top: "loss" })",
            "net", solver.train.net);
  solver.train.locate = [](const std::string& path) { return Location{path}; };
  return solver;
}

std::string ErrorOf(const std::string& loss, const std::string& job) {
  const Solver solver = SolverOfDummies(loss);
  JobConfig config;
  ParseText(job, "job", config.job);
  return MessageOf<ConfigError>(
      [&] { CheckTrainNet(config.job, CheckData(config, solver), solver.train); });
}

// Each of the two devices describes the net for 64 samples, and none does for the worker's 128.
TEST(TrainingChecksTest, ABatchThatDevicesShareIsNoBatchOfTheNet) {
  EXPECT_EQ(ErrorOf("SoftmaxWithLoss",
                    "cluster { devices_per_worker: 2 } training { batch_per_worker: 128 "
                    "large_batch { label_smoothing: 0.1 } }"),
            "");
}

TEST(TrainingChecksTest, WhatTheNetCanNotHaveIsRefused) {
  EXPECT_EQ(ErrorOf("HingeLoss", ""), "");
  EXPECT_THAT(ErrorOf("HingeLoss", "training { large_batch { label_smoothing: 0.1 } }"),
              HasSubstr("training.large_batch.label_smoothing has no effect"));
  EXPECT_THAT(ErrorOf("SoftmaxWithLoss", "training { batch: BALANCED }"),
              HasSubstr("training.batch can't be BALANCED: "));
}

}  // namespace
}  // namespace poseidon
