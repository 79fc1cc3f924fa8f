#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "caffe_adapter/net/solver.h"
#include "core/error.h"
#include "proto/update_rule_message.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNet[] =
    "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }\n"
    "layer { name: 'y' type: 'Input' top: 'y' input_param { shape { dim: 2 } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'\n"
    "  inner_product_param { num_output: 3 } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'y' top: 'loss' }\n";

constexpr char kRule[] = "\nbase_lr: 0.1 lr_policy: 'fixed' max_iter: 10\n";

class CaffeSolverTest : public testing::Test {
 protected:
  CaffeSolverTest() { directory_.Write("net.prototxt", kNet); }

  Solver Load(const std::string& text) const {
    return LoadSolver(directory_.Write("solver.prototxt", text));
  }

  // The message, with the directory left out.
  std::string Error(const std::string& text) const {
    std::string message = MessageOf<ConfigError>([&] { Load(text); });
    const std::string prefix = directory_.path() + "/";
    for (size_t at; (at = message.find(prefix)) != std::string::npos;) {
      message.erase(at, prefix.size());
    }
    return message;
  }

  // Of a solver that is right but for `fields`, which stand in its line 2 from column 1.
  std::string ErrorOf(const std::string& fields) const {
    return Error("net: 'net.prototxt' base_lr: 0.1 max_iter: 10\n" + fields);
  }

  TemporaryDirectory directory_;
};

TEST_F(CaffeSolverTest, LoadsANetBesideIt) {
  const Solver solver = Load(
      "net: 'net.prototxt' test_iter: 4 test_interval: 5 train_state { stage: 's' }"
      " test_state { level: 1 }" +
      std::string(kRule));
  EXPECT_EQ(solver.train.phase, caffe::TRAIN);
  EXPECT_EQ(solver.train.state.stage(0), "s");
  EXPECT_EQ(solver.train.net.layer_size(), 4);
  ASSERT_EQ(solver.tests.size(), 1u);
  EXPECT_EQ(solver.tests[0].phase, caffe::TEST);
  EXPECT_EQ(solver.tests[0].state.level(), 1);
  EXPECT_EQ(DescribeNet(solver.train).layers.size(), 4u);
}

TEST_F(CaffeSolverTest, NetsForTrainingAndForTests) {
  const Solver solver = Load(
      "train_net: 'net.prototxt' test_net: 'net.prototxt'"
      " test_net_param { name: 'inside' layer { name: 'x' } }"
      " test_iter: 1 test_iter: 2 test_interval: 5" +
      std::string(kRule));
  ASSERT_EQ(solver.tests.size(), 2u);
  EXPECT_EQ(solver.tests[0].net.name(), "inside");
  EXPECT_EQ(solver.tests[1].net.layer_size(), 4);
}

TEST_F(CaffeSolverTest, TestNetsAreToldByTheirStages) {
  const Solver solver = Load(
      "net: 'net.prototxt' test_interval: 5 test_iter: 1 test_iter: 1 test_iter: 1 test_state {}"
      " test_state { stage: 'a' } test_state { stage: 'a' stage: 'b' }" +
      std::string(kRule));
  EXPECT_EQ(TestNetName(solver, 0), "test net 0");
  EXPECT_EQ(TestNetName(solver, 1), "test net 1 (stage a)");
  EXPECT_EQ(TestNetName(solver, 2), "test net 2 (stages a, b)");
}

TEST_F(CaffeSolverTest, ErrorsInANetInsideASolverHaveTheirPlace) {
  const Solver solver = Load(
      "net_param {\n layer { name: 'l' type: 'SoftmaxWithLoss'\n"
      "  bottom: 'none' }\n}" +
      std::string(kRule));
  EXPECT_THAT(MessageOf<ConfigError>([&] { DescribeNet(solver.train); }),
              StartsWith(directory_.Path("solver.prototxt:3:3: layer \"l\"")));
}

TEST_F(CaffeSolverTest, ASnapshotPrefixThatNamesADirectoryGetsTheSolversName) {
  const auto prefix = [&](const std::string& given) {
    return Load("net: 'net.prototxt' snapshot_prefix: '" + given + "'" + kRule)
        .parameter.snapshot_prefix();
  };
  EXPECT_EQ(prefix("out/"), "out/solver");
  EXPECT_EQ(prefix("out/x"), "out/x");
  EXPECT_EQ(prefix(directory_.path()), directory_.path()) << "whatever is there";
  EXPECT_EQ(prefix(""), "");
}

TEST_F(CaffeSolverTest, UpdateRule) {
  const Solver solver = Load(
      "net: 'net.prototxt' base_lr: 0.5 lr_policy: 'multistep' gamma: 0.25 stepvalue: 3 "
      "stepvalue: 9 power: 2 max_iter: 77 momentum: 0.75 weight_decay: 0.125 "
      "regularization_type: 'L1'");
  const UpdateRuleSpec rule = ToUpdateRuleSpec(solver.parameter);
  EXPECT_EQ(rule.type(), "SGD");
  EXPECT_EQ(rule.base_lr(), 0.5F);
  EXPECT_EQ(rule.lr_policy(), "multistep");
  EXPECT_EQ(rule.gamma(), 0.25F);
  EXPECT_THAT(rule.stepvalue(), ElementsAre(3, 9));
  EXPECT_EQ(rule.power(), 2);
  EXPECT_EQ(rule.max_iter(), 77);
  EXPECT_EQ(rule.momentum(), 0.75F);
  EXPECT_EQ(rule.weight_decay(), 0.125F);
  EXPECT_EQ(rule.regularization_type(), "L1");
  EXPECT_EQ(rule.delta(), 1e-8F);
  EXPECT_EQ(rule.momentum2(), 0.999F);
  EXPECT_EQ(rule.rms_decay(), 0.99F);
  EXPECT_FALSE(rule.deferred());
  EXPECT_FALSE(rule.has_clip_gradients());
}

// Workers that would clip otherwise are to declare another model.
TEST_F(CaffeSolverTest, ClippingIsInTheUpdateRule) {
  const UpdateRuleSpec rule = ToUpdateRuleSpec(
      Load("clip_gradients: 35 net: 'net.prototxt'" + std::string(kRule)).parameter);
  EXPECT_TRUE(rule.deferred());
  EXPECT_EQ(rule.clip_gradients(), 35);
}

TEST_F(CaffeSolverTest, UpdateRuleOfAnAdaptiveType) {
  const Solver solver = Load(
      "type: 'Adam' net: 'net.prototxt' momentum: 0.5 momentum2: 0.75 "
      "delta: 0.125 rms_decay: 0.25" +
      std::string(kRule));
  const UpdateRuleSpec rule = ToUpdateRuleSpec(solver.parameter);
  EXPECT_EQ(rule.type(), "Adam");
  EXPECT_EQ(rule.momentum(), 0.5F);
  EXPECT_EQ(rule.momentum2(), 0.75F);
  EXPECT_EQ(rule.delta(), 0.125F);
  EXPECT_EQ(rule.rms_decay(), 0.25F);
}

// A ModelSpec that no solver was read for (a replay's) need not have the adaptive types' fields.
TEST(ToUpdateRuleTest, FieldsNotSetHaveCaffesDefaults) {
  UpdateRuleSpec spec;
  spec.set_type("Adam");
  spec.set_lr_policy("fixed");
  const UpdateRule rule = ToUpdateRule(spec);
  EXPECT_EQ(rule.delta, caffe::SolverParameter().delta());
  EXPECT_EQ(rule.momentum2, caffe::SolverParameter().momentum2());
  EXPECT_EQ(rule.rms_decay, caffe::SolverParameter().rms_decay());
  spec.set_delta(0);
  EXPECT_THROW(ToUpdateRule(spec), ConfigError);
  spec.set_delta(0.5F);
  spec.set_momentum2(0.25F);
  spec.set_rms_decay(0.125F);
  const UpdateRule set = ToUpdateRule(spec);
  EXPECT_EQ(set.delta, 0.5F);
  EXPECT_EQ(set.momentum2, 0.25F);
  EXPECT_EQ(set.rms_decay, 0.125F);
}

TEST_F(CaffeSolverTest, SolverTypes) {
  const auto type_of = [&](const std::string& field) {
    return Load(field + " net: 'net.prototxt'" + kRule).parameter.type();
  };
  EXPECT_EQ(type_of(""), "SGD");
  for (const char* type : {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}) {
    std::string older = type;
    for (char& letter : older) letter = static_cast<char>(std::toupper(letter));
    EXPECT_EQ(type_of("solver_type: " + older), type);
    EXPECT_EQ(type_of("type: '" + std::string(type) + "'"), type);
  }
  EXPECT_EQ(ErrorOf("type: 'Sgd'"),
            "solver.prototxt:2:1: unknown solver type \"Sgd\"; Caffe's are SGD, Nesterov, AdaGrad, "
            "RMSProp, AdaDelta, Adam");
  EXPECT_EQ(ErrorOf("solver_type: ADAM type: 'Adam'"),
            "solver.prototxt:2:1: give type or the older solver_type, not both");
}

TEST_F(CaffeSolverTest, FieldsThatATypeReads) {
  EXPECT_EQ(ErrorOf("momentum: 0.9 type: 'AdaGrad'"),
            "solver.prototxt:2:1: solver type AdaGrad has no momentum; leave it out");
  EXPECT_EQ(ErrorOf("momentum: 0.9 solver_type: RMSPROP"),
            "solver.prototxt:2:1: solver type RMSProp has no momentum; leave it out");
  EXPECT_EQ(ErrorOf("type: 'RMSProp' rms_decay: 1"),
            "solver.prototxt:2:17: rms_decay must be below 1");
  EXPECT_EQ(ErrorOf("type: 'Adam' momentum2: -1"),
            "solver.prototxt:2:14: momentum2 must not be negative");
  EXPECT_EQ(ErrorOf("type: 'AdaDelta' delta: 0"),
            "solver.prototxt:2:18: delta must be above 0, as solver type AdaDelta divides by it");
  EXPECT_NO_THROW(
      Load("type: 'SGD' delta: 0 rms_decay: 7 net: 'net.prototxt'" + std::string(kRule)));
}

TEST_F(CaffeSolverTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(ErrorOf("snapshot_diff: true"), StartsWith("solver.prototxt:2:1: snapshot_diff"));
  EXPECT_THAT(ErrorOf("debug_info: true"), StartsWith("solver.prototxt:2:1: debug_info"));
  for (const char* supported : {"iter_size: 2", "clip_gradients: 35", "weights: 'x.caffemodel'",
                                "snapshot_format: HDF5", "average_loss: 20"}) {
    // No further than the policy, which is missing.
    EXPECT_THAT(ErrorOf(supported), HasSubstr("lr_policy")) << supported;
  }
}

TEST_F(CaffeSolverTest, ValuesOutOfRange) {
  EXPECT_EQ(ErrorOf("iter_size: 0"), "solver.prototxt:2:1: iter_size must be at least 1");
  EXPECT_THAT(ErrorOf("clip_gradients: 0"), HasSubstr("clip_gradients is 0"));
  EXPECT_EQ(ErrorOf("momentum: -0.5"), "solver.prototxt:2:1: momentum must not be negative");
  EXPECT_EQ(ErrorOf("momentum: 1"), "solver.prototxt:2:1: momentum must be below 1");
  EXPECT_EQ(ErrorOf("weight_decay: -1"), "solver.prototxt:2:1: weight_decay must not be negative");
  EXPECT_EQ(ErrorOf("weight_decay: nan"),
            "solver.prototxt:2:1: weight_decay is nan; it must be a number");
  EXPECT_EQ(ErrorOf("display: -1"), "solver.prototxt:2:1: display must not be negative");
  EXPECT_EQ(ErrorOf("test_interval: 5 test_iter: 0"),
            "solver.prototxt:2:18: test_iter must be at least 1");
  EXPECT_THAT(ErrorOf("test_iter: 5"), HasSubstr("test_iter needs test_interval"));
  EXPECT_THAT(ErrorOf("regularization_type: 'L3'"), HasSubstr("must be \"L1\" or \"L2\""));
  EXPECT_THAT(Error("net: 'net.prototxt' base_lr: 1 max_iter: 0"), HasSubstr("max_iter must be"));
  EXPECT_THAT(Error("net: 'net.prototxt' base_lr: 1"), HasSubstr("max_iter, how many"));
  EXPECT_THAT(Error("net: 'net.prototxt' max_iter: 1"), HasSubstr("base_lr, the learning rate,"));
}

TEST_F(CaffeSolverTest, PoliciesAndTheirFields) {
  const auto missing = [](const std::string& policy, const std::string& field) {
    return "solver.prototxt:2:1: lr_policy \"" + policy + "\" needs " + field;
  };
  EXPECT_EQ(ErrorOf("lr_policy: 'step' gamma: 0.1"), missing("step", "stepsize"));
  EXPECT_EQ(ErrorOf("lr_policy: 'step' stepsize: 5"), missing("step", "gamma"));
  EXPECT_EQ(ErrorOf("lr_policy: 'exp'"), missing("exp", "gamma"));
  EXPECT_EQ(ErrorOf("lr_policy: 'inv' gamma: 1"), missing("inv", "power"));
  EXPECT_EQ(ErrorOf("lr_policy: 'poly'"), missing("poly", "power"));
  EXPECT_EQ(ErrorOf("lr_policy: 'multistep' gamma: 1"), missing("multistep", "stepvalue"));
  EXPECT_EQ(ErrorOf("lr_policy: 'sigmoid' gamma: 1"), missing("sigmoid", "stepsize"));
  EXPECT_THAT(ErrorOf("lr_policy: 'step' gamma: 1 stepsize: 0"), HasSubstr(":28: stepsize must"));
  const auto error = [&](const std::string& policy) {
    return Error("net: 'net.prototxt' base_lr: 1 max_iter: 9 lr_policy: " + policy);
  };
  EXPECT_EQ(error("'multistep' gamma: 1 stepvalue: 5 stepvalue: 5 stepvalue: 3"), "");
  EXPECT_EQ(error("'sigmoid' gamma: 0 stepsize: 5"), "");
  EXPECT_EQ(error("'poly' power: 0"), "");
  EXPECT_EQ(ErrorOf("lr_policy: 'poly' power: -1"),
            "solver.prototxt:2:19: power must not be negative");
  EXPECT_THAT(ErrorOf("lr_policy: 'cosine'"), HasSubstr("unknown lr_policy \"cosine\"; expected"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("lr_policy is missing; expected fixed"));
}

// As in Caffe's Solver::InitTestNets.
TEST_F(CaffeSolverTest, WithoutTestIterNothingIsTested) {
  EXPECT_TRUE(Load("net: 'net.prototxt' test_interval: 5" + std::string(kRule)).tests.empty());
}

TEST_F(CaffeSolverTest, NetsThatAreMissingOrDoNotFit) {
  EXPECT_THAT(Error(kRule), HasSubstr("the solver names 0 nets to train"));
  EXPECT_THAT(Error("net: 'net.prototxt' train_net: 'net.prototxt'" + std::string(kRule)),
              HasSubstr("names 2 nets"));
  EXPECT_THAT(Error("\nnet: 'nat.prototxt'" + std::string(kRule)),
              StartsWith("solver.prototxt:2:1: no net file nat.prototxt in the working directory"));
  EXPECT_THAT(Error("train_net: 'net.prototxt' test_iter: 1 test_interval: 1" + std::string(kRule)),
              HasSubstr("there are 1 test_iter entries for 0 test nets"));
  EXPECT_THAT(Error("net: 'net.prototxt' test_iter: 1 test_interval: 1 test_state {}"
                    " test_state {}" +
                    std::string(kRule)),
              HasSubstr("2 test_state entries for 1 test nets"));
  EXPECT_THAT(
      Error("net_param { layer { name: 'x' type: 'Input' top: 'x' } }" + std::string(kRule)),
      HasSubstr("no layer in TRAIN has a loss"));
  EXPECT_THAT(Error("net_param { layer { name: 'l' type: 'SoftmaxWithLoss' include { phase: TRAIN }"
                    " } } test_iter: 1 test_interval: 1" +
                    std::string(kRule)),
              HasSubstr("does not fit its solver: test_iter is given"));
  // A net given in place of a solver.
  EXPECT_THAT(Error(kNet),
              StartsWith("solver.prototxt:1:1: SolverParameter has no field \"layer\""));
}

}  // namespace
}  // namespace poseidon
