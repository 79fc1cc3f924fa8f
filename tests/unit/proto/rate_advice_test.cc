// Which learning rate to try where gradients come late.
#include "proto/rate_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

using testing::HasSubstr;

Plan PlanOf(int staleness, WireCodec codec) {
  Plan plan;
  plan.set_workers(4);
  plan.set_staleness(staleness);
  plan.add_buckets();
  plan.add_buckets()->set_codec(codec);
  return plan;
}

UpdateRuleSpec RuleOf(float base_lr) {
  UpdateRuleSpec rule;
  rule.set_base_lr(base_lr);
  return rule;
}

TEST(RateAdvice, NamesTheRateToTryWhereGradientsComeLate) {
  EXPECT_EQ(RateAdvice(PlanOf(2, FP32), RuleOf(0.03F)),
            "gradients are up to 2 iterations late (communication.staleness): if training "
            "diverges, try base_lr 0.01, 1/3 of 0.03");
  EXPECT_THAT(*RateAdvice(PlanOf(1, FP32), RuleOf(0.03F)), HasSubstr("up to 1 iteration late"));
  EXPECT_THAT(*RateAdvice(PlanOf(-1, FP32), RuleOf(0.03F)),
              HasSubstr("try base_lr 0.0075, 1/4 of 0.03"));
  for (const WireCodec codec : {ONE_BIT, TOP_K}) {
    EXPECT_THAT(*RateAdvice(PlanOf(0, codec), RuleOf(0.03F)),
                HasSubstr("(communication.codec: " + WireCodec_Name(codec) +
                          "): if training diverges, try base_lr 0.01, 1/3 of 0.03"));
  }
}

// What is written in the solver is scaled again.
TEST(RateAdvice, IsOfTheSolversRateWhereARecipeHasScaledIt) {
  UpdateRuleSpec rule = RuleOf(0.04F);
  rule.set_solver_base_lr(0.01F);
  EXPECT_THAT(*RateAdvice(PlanOf(1, FP32), rule), HasSubstr("try base_lr 0.005, 1/2 of 0.01"));
}

TEST(RateAdvice, SaysNothingWhereNoneComesLate) {
  for (const WireCodec codec : {FP32, FP16, BF16, INT8}) {
    EXPECT_FALSE(RateAdvice(PlanOf(0, codec), RuleOf(0.03F))) << WireCodec_Name(codec);
  }
  Plan alone = PlanOf(-1, FP32);
  alone.set_workers(1);
  EXPECT_FALSE(RateAdvice(alone, RuleOf(0.03F)));
}

TEST(DivergenceAdvice, AlwaysSaysSomething) {
  EXPECT_EQ(DivergenceAdvice(PlanOf(0, FP32), RuleOf(0.03F)), "a smaller base_lr usually helps");
  EXPECT_EQ(DivergenceAdvice(PlanOf(2, FP32), RuleOf(0.03F)),
            *RateAdvice(PlanOf(2, FP32), RuleOf(0.03F)));
}

}  // namespace
}  // namespace poseidon
