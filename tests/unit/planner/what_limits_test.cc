#include "planner/what_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "planner/model_times.h"
#include "planner/planner.h"
#include "planner/predictor.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Eight workers and servers, where all but the layers' 300 ms takes no time.
ClusterModel FreeCluster() {
  ClusterModel cluster;
  cluster.workers = 8;
  cluster.servers = 8;
  cluster.goodput = 1e18;
  cluster.latency = 0;
  cluster.message_cost = 0;
  cluster.reduction_rate = 1e18;
  cluster.update_rate = 1e18;
  cluster.flops = 1e18;
  return cluster;
}

InformationBook BookOf(const ClusterModel& cluster) {
  ModelSpec model = Vgg19(32);
  for (LayerSpec& layer : *model.mutable_layers()) {
    layer.set_forward_ms(100.0 / model.layers_size());
    layer.set_backward_ms(200.0 / model.layers_size());
  }
  return {model, cluster.workers, cluster.servers};
}

Plan PlanOf(const InformationBook& book, Communication::Policy policy) {
  Communication communication;
  communication.set_policy(policy);
  return MakePlan(book, communication);
}

Limits LimitsOf(const ClusterModel& cluster, Communication::Policy policy) {
  const InformationBook book = BookOf(cluster);
  return WhatLimits(PlanOf(book, policy), book, cluster);
}

// A hundred workers and servers, whose exchange takes long.
ClusterModel LargeCluster() {
  ClusterModel cluster = FreeCluster();
  cluster.workers = cluster.servers = 100;
  cluster.goodput = 1e9;
  cluster.message_cost = 2e-5;
  cluster.update_rate = 2e9;
  return cluster;
}

std::string Changes(const Limits& limits) {
  std::string changes;
  for (const Improvement& improvement : limits.improvements) changes += improvement.what + "; ";
  return changes;
}

TEST(WhatLimitsTest, WhereNothingElseTakesTimeItIsComputing) {
  const Limits limits = LimitsOf(FreeCluster(), Communication::ALL_PS);
  EXPECT_EQ(limits.by, "computing");
  EXPECT_NEAR(limits.seconds, 0.3, 1e-6);
  EXPECT_LT(limits.without, 1e-3);
  ASSERT_EQ(limits.improvements.size(), 1);
  EXPECT_EQ(limits.improvements[0].what, "computing twice as fast");
  EXPECT_TRUE(limits.setbacks.empty());
  EXPECT_NEAR(limits.improvements[0].seconds, 0.15, 1e-6);
}

TEST(WhatLimitsTest, NamesTheOneThingThatIsSlow) {
  struct Case {
    const char* by;
    const char* change;
    Communication::Policy policy;
    std::function<void(ClusterModel&)> slow;
  };
  const Case cases[] = {
      {"the network", "twice the bandwidth", Communication::ALL_PS,
       [](ClusterModel& cluster) { cluster.goodput = 5e8; }},
      {"the network", "half the latency", Communication::ALL_RING,
       [](ClusterModel& cluster) { cluster.latency = 5e-3; }},
      {"messages on lanes", "lanes 1 -> 4", Communication::ALL_PS,
       [](ClusterModel& cluster) { cluster.message_cost = 1e-3; }},
      {"updates", "update_rate", Communication::ALL_SFB,
       [](ClusterModel& cluster) { cluster.update_rate = 5e8; }},
      {"sums of gradients", "reduction_rate", Communication::ALL_RING,
       [](ClusterModel& cluster) { cluster.reduction_rate = 5e8; }},
      {"rebuilding from factors", "rebuilding", Communication::ALL_SFB,
       [](ClusterModel& cluster) { cluster.flops = 1e11; }},
      {"copies to and from devices", "copy_bandwidth", Communication::ALL_PS,
       [](ClusterModel& cluster) { cluster.copy_rate = 1e9; }},
  };
  for (const Case& slow : cases) {
    SCOPED_TRACE(slow.by);
    ClusterModel cluster = FreeCluster();
    slow.slow(cluster);
    const Limits limits = LimitsOf(cluster, slow.policy);
    EXPECT_EQ(limits.by, slow.by);
    EXPECT_FALSE(limits.at_best);
    EXPECT_THAT(Changes(limits), HasSubstr(slow.change));
    EXPECT_NEAR(limits.without, 0.3, 0.003);
    for (const Improvement& improvement : limits.improvements) {
      EXPECT_LT(improvement.seconds, limits.seconds) << improvement.what;
    }
  }
}

// A network that takes no time brings the messages of all layers at once, and these then wait for
// each other: half the network can gain more.
TEST(WhatLimitsTest, NoChangeOfWhatIsNamedGainsMoreThanItsEnd) {
  ClusterModel cluster;  // 10 Gb/s
  cluster.workers = cluster.servers = 8;
  cluster.flops = 1e12;
  const InformationBook book(AlexNet(32), cluster.workers, cluster.servers);
  const Limits limits =
      WhatLimits(PlanOf(book, Communication::ALL_HALVING_DOUBLING), book, cluster);
  EXPECT_EQ(limits.by, "the network");
  ASSERT_THAT(Changes(limits), HasSubstr("twice the bandwidth"));
  EXPECT_TRUE(limits.at_best);
  EXPECT_EQ(limits.without, limits.improvements[0].seconds);
  for (const Improvement& improvement : limits.improvements) {
    EXPECT_LE(limits.without, improvement.seconds) << improvement.what;
  }
}

// At 20 Gb/s, with one lane, the all-reduces of layers follow each other; at 40 Gb/s they meet.
TEST(WhatLimitsTest, SaysWhereAFasterNetworkIsSlower) {
  ClusterModel cluster;
  cluster.workers = cluster.servers = 8;
  cluster.goodput = 2.35e9;
  cluster.flops = 1e12;
  const InformationBook book(AlexNet(32), cluster.workers, cluster.servers);
  const Plan plan = PlanOf(book, Communication::ALL_HALVING_DOUBLING);
  const Limits limits = WhatLimits(plan, book, cluster);
  ASSERT_FALSE(limits.setbacks.empty());
  EXPECT_EQ(limits.setbacks[0].what, "twice the bandwidth");
  EXPECT_GT(limits.setbacks[0].seconds, 1.05 * limits.seconds);
  EXPECT_THAT(Changes(limits), Not(HasSubstr("twice the bandwidth")));
}

TEST(WhatLimitsTest, OfAStepAllTimesAreShares) {
  Limits limits;
  limits.seconds = 8;
  limits.without = 4;
  limits.improvements.push_back({"half the latency", 6});
  limits.setbacks.push_back({"twice the bandwidth", 10});
  const Limits step = OfAStep(limits, 4);
  EXPECT_EQ(step.seconds, 2);
  EXPECT_EQ(step.without, 1);
  EXPECT_EQ(step.improvements[0].seconds, 1.5);
  EXPECT_EQ(step.setbacks[0].seconds, 2.5);
}

// Four GPUs a worker and copies of 50 Gb/s, beside a network of 40 Gb/s: without copies an
// iteration is shorter than without a network, but with twice the bandwidth it is shortest.
TEST(WhatLimitsTest, NamesWhatAChangeGainsMostOf) {
  ClusterModel cluster;
  cluster.workers = cluster.servers = 4;
  cluster.goodput = 4.7e9;
  cluster.send_buffer_bytes = WindowBytes(cluster) + (128 << 10);
  cluster.flops = 2.355e13;
  cluster.devices = 4;
  cluster.device_rate = 12.5e9;
  cluster.copy_rate = 6.25e9;
  cluster.devices_update = true;
  const ModelSpec model = WithBatches(WithTimes(Vgg19(32), cluster.flops), cluster.devices);
  const InformationBook book(model, cluster.workers, cluster.servers);
  Communication communication;
  communication.set_policy(Communication::ALL_RING);
  communication.set_lanes(2);
  const Limits limits = WhatLimits(MakePlan(book, communication), book, cluster);
  EXPECT_EQ(limits.by, "the network");
  ASSERT_FALSE(limits.improvements.empty());
  EXPECT_EQ(limits.improvements[0].what, "twice the bandwidth");
  EXPECT_LE(limits.without, limits.improvements[0].seconds);
}

// A link with a rate of its own keeps it, whatever the others' is.
TEST(WhatLimitsTest, OfOneSlowLinkThatLinkIsToBeMended) {
  ClusterModel cluster = FreeCluster();
  cluster.goodput = 5e9;
  cluster.deviations[3].link_share = 0.05;
  const Limits limits = LimitsOf(cluster, Communication::ALL_RING);
  EXPECT_EQ(limits.by, "the network");
  EXPECT_THAT(Changes(limits), HasSubstr("slow links as fast as the others"));
  EXPECT_THAT(Changes(limits), Not(HasSubstr("twice the bandwidth")));
  cluster.deviations.clear();
  EXPECT_NEAR(limits.improvements[0].seconds, LimitsOf(cluster, Communication::ALL_RING).seconds,
              0.01 * limits.seconds);
}

TEST(WhatLimitsTest, OfLinksThatAreAllSlowNoneIsAnExample) {
  ClusterModel cluster = FreeCluster();
  cluster.goodput = 5e9;
  for (int machine = 0; machine < 8; ++machine) cluster.deviations[machine].link_share = 0.05;
  const std::string changes = Changes(LimitsOf(cluster, Communication::ALL_RING));
  EXPECT_THAT(changes, HasSubstr("all links of the network's bandwidth; "));
  EXPECT_THAT(changes, Not(HasSubstr("the others")));
}

// All that is said is of one model, or an improvement could be slower than what there is.
TEST(WhatLimitsTest, OfALargePlanImprovementsAreBetterThanItsPrediction) {
  const Limits limits = LimitsOf(LargeCluster(), Communication::ALL_PS);
  EXPECT_TRUE(limits.estimated);
  EXPECT_FALSE(limits.seconds_estimated);
  EXPECT_LT(limits.without, limits.seconds);
  EXPECT_FALSE(limits.improvements.empty());
  for (const Improvement& improvement : limits.improvements) {
    EXPECT_LT(improvement.seconds, limits.seconds) << improvement.what;
  }
}

// However far the prediction is below the estimate of the same plan.
TEST(WhatLimitsTest, OfALargePlanWithoutExchangesTheComputingIsLeft) {
  const ClusterModel cluster = LargeCluster();
  const InformationBook book = BookOf(cluster);
  Plan plan = PlanOf(book, Communication::ALL_PS);
  plan.set_iteration_ms(750 * Predictor(book, cluster).Estimate(plan).seconds);
  const Limits limits = WhatLimits(plan, book, cluster);
  EXPECT_EQ(limits.by, "the network");
  EXPECT_GE(limits.without, 0.3 - 1e-9);
}

// What is compared with others is estimated sooner than the plan that they lead to.
TEST(WhatLimitsTest, APlanIsPredictedUpToMoreMessagesThanItsRivals) {
  const ClusterModel cluster = LargeCluster();
  const InformationBook book = BookOf(cluster);
  Plan plan = PlanOf(book, Communication::ALL_RING);
  Predictor exact(book, cluster);
  const double predicted = exact.Predict(plan).seconds;
  const double estimated = exact.Estimate(plan).seconds;
  ASSERT_NE(predicted, estimated);
  Predictor quick(book, cluster, {.predicted = 1});
  EXPECT_EQ(quick.Predict(plan).seconds, estimated);
  EXPECT_FALSE(quick.IsEstimated(plan));
  quick.Annotate(plan);
  EXPECT_DOUBLE_EQ(plan.iteration_ms(), 1000 * predicted);
  Predictor quickest(book, cluster, {.predicted = 1, .annotated = 1});
  EXPECT_TRUE(quickest.IsEstimated(plan));
  quickest.Annotate(plan);
  EXPECT_DOUBLE_EQ(plan.iteration_ms(), 1000 * estimated);
}

}  // namespace
}  // namespace poseidon
