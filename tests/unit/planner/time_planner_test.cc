#include "planner/time_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "planner/cost/exchange_tables.h"
#include "planner/job_plan.h"
#include "planner/plan_search.h"
#include "planner/planner.h"
#include "proto/bucket.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

constexpr Communication::Policy kOthers[] = {
    Communication::BYTES,    Communication::ALL_PS,    Communication::ALL_SFB,
    Communication::ALL_RING, Communication::ALL_TORUS, Communication::ALL_HALVING_DOUBLING,
    Communication::ALL_ADAM};

ClusterModel Cluster(int workers, double gigabits, double latency) {
  ClusterModel cluster;
  cluster.workers = workers;
  cluster.servers = workers;
  cluster.goodput = gigabits * 1e9 / 8;
  cluster.latency = latency;
  return cluster;
}

// None of the other policies' plans is: `plan` takes at most `worth` of their time, and where it
// takes more than their time it has fewer messages.
void ExpectFastest(const Plan& plan, double worth, Predictor& predictor) {
  for (const Communication::Policy policy : kOthers) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    Communication communication;
    communication.set_policy(policy);
    const Plan other = MakePlan(predictor.book(), communication);
    const double milliseconds = 1000 * predictor.Predict(other).seconds;
    EXPECT_LE(plan.iteration_ms(), worth * milliseconds + 1e-6);
    if (plan.iteration_ms() <= milliseconds + 1e-6) continue;
    EXPECT_LT(MessagesOfAll(plan), MessagesOfAll(other));
  }
}

// A plan that is tried has few messages; what they are worth is little. Returns whether it has
// fewer than the fastest.
bool ExpectNothingElseIsPredictedToBeFaster(const ModelSpec& model, double gigabits) {
  SCOPED_TRACE(std::to_string(gigabits) + " Gb/s");
  const InformationBook book(model, 3, 3);
  Predictor predictor(book, Cluster(3, gigabits, 1e-3));
  const auto trial = [&](const Plan& plan, TrialLength) -> std::optional<double> {
    return predictor.Predict(plan).seconds;
  };
  Plan untried = PlanByTime(predictor, {});
  ExpectFastest(untried, 1, predictor);
  EXPECT_GE(untried.iteration_ms(), untried.compute_ms() - 1e-6);
  const Plan tried = PlanByTime(predictor, {}, trial);
  ExpectFastest(tried, kWorthMessages, predictor);
  EXPECT_LE(tried.iteration_ms(), kWorthMessages * untried.iteration_ms() + 1e-6);
  EXPECT_LE(MessagesOfAll(tried), MessagesOfAll(untried));
  untried.set_fifo(true);
  EXPECT_LE(untried.iteration_ms(), 1000 * predictor.Predict(untried).seconds + 1e-6);
  return MessagesOfAll(tried) < MessagesOfAll(untried);
}

TEST(TimePlannerTest, NothingElseIsPredictedToBeFaster) {
  ExpectNothingElseIsPredictedToBeFaster(Vgg19(32), 10);
  EXPECT_TRUE(ExpectNothingElseIsPredictedToBeFaster(GoogLeNet(32), 1));
}
TEST(TimePlannerTest, SlowNothingElseIsPredictedToBeFaster) {
  ExpectNothingElseIsPredictedToBeFaster(Vgg19(32), 1);
  ExpectNothingElseIsPredictedToBeFaster(GoogLeNet(32), 10);
}

TEST(TimePlannerTest, OfLocalStepsNoOtherSchemeIsPredictedToBeFaster) {
  std::set<Scheme> chosen;
  for (const int workers : {4, 6, 16}) {
    for (const double gigabits : {0.1, 1.0, 10.0}) {
      for (const double latency : {2e-5, 5e-3}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(gigabits) + " Gb/s");
        const ModelSpec model = GoogLeNet(32);
        const InformationBook book(model, workers, workers);
        Predictor predictor(book, Cluster(workers, gigabits, latency));
        Communication communication;
        communication.set_local_steps(20);
        communication.set_fragments(4);
        communication.set_overlap_steps(2);
        const Plan plan = PlanByTime(predictor, communication);
        EXPECT_EQ(plan.local_steps(), 20);
        chosen.insert(plan.buckets(0).scheme());
        for (const Communication::Policy policy :
             {Communication::ALL_PS, Communication::ALL_RING, Communication::ALL_HALVING_DOUBLING,
              Communication::ALL_TORUS}) {
          communication.set_policy(policy);
          const double other = predictor.Predict(MakePlan(book, communication)).seconds;
          EXPECT_LE(plan.iteration_ms(), 1000 * other + 1e-6) << Communication::Policy_Name(policy);
        }
      }
    }
  }
  EXPECT_GT(chosen.size(), 1);  // it depends
}

// Where the network limits, a fragment alone may take longer than a grid's whole iteration may.
TEST(TimePlannerTest, LocalStepsArePlannedForAnyNumberOfWorkers) {
  const ModelSpec model = GoogLeNet(8);
  for (const int workers : {2, 3, 6, 7, 12}) {
    for (const Communication::Policy policy : {Communication::TIME, Communication::ALL_TORUS}) {
      for (const int fragments : {1, 4}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + Communication::Policy_Name(policy));
        Job job;
        job.mutable_cluster()->set_workers(workers);
        job.mutable_cluster()->set_servers(workers);
        job.mutable_cluster()->mutable_network()->set_bandwidth("100Mbps");
        job.mutable_cluster()->mutable_network()->set_latency("20ms");
        Communication& communication = *job.mutable_communication();
        communication.set_policy(policy);
        communication.set_local_steps(4);
        communication.set_fragments(fragments);
        communication.set_lanes(1);
        const Plan plan = PlanJob(InformationBook(model, job.cluster()), job);
        EXPECT_EQ(plan.local_steps(), 4);
        EXPECT_GT(plan.iteration_ms(), plan.compute_ms());
        for (const BucketPlan& bucket : plan.buckets()) {
          EXPECT_GT(bucket.prediction().exchange_ms(), 0) << bucket.name();
        }
      }
    }
  }
}

TEST(TimePlannerTest, EveryLayerIsInOneBucketInOrder) {
  const ModelSpec model = ResNet50(32);
  const InformationBook book(model, 8, 1);
  ClusterModel slow = Cluster(8, 1, 1e-3);
  slow.servers = 1;
  slow.colocated = false;
  Predictor predictor(book, slow);
  const Plan plan = PlanByTime(predictor, {});
  int layers = 0;
  for (const BucketPlan& bucket : plan.buckets()) {
    EXPECT_EQ(bucket.first_layer(), layers);
    layers += bucket.layer_count();
    EXPECT_GT(bucket.prediction().exchange_ms(), 0);
    // One server for eight workers would take four times as long.
    EXPECT_FALSE(UsesServers(bucket.scheme()) && FloatCount(bucket) > 1000000) << bucket.name();
  }
  EXPECT_EQ(layers, model.layers_size());
}

TEST(TimePlannerTest, UsesTheCodecWhereItPaysOnly) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 8, 8);
  Communication communication;
  communication.set_codec(FP16);
  const auto coded = [&](double gigabits) {
    Predictor predictor(book, Cluster(8, gigabits, 10e-6));
    const Plan plan = PlanByTime(predictor, communication);
    int buckets = 0;
    for (const BucketPlan& bucket : plan.buckets()) buckets += bucket.codec() == FP16 ? 1 : 0;
    return buckets;
  };
  EXPECT_GT(coded(0.5), 0);
  EXPECT_EQ(coded(1000), 0);
}

TEST(TimePlannerTest, IsTheSameEveryTime) {
  const ModelSpec model = GoogLeNet(32);
  const InformationBook book(model, 4, 4);
  Predictor predictor(book, Cluster(4, 1, 100e-6));
  Predictor again(book, Cluster(4, 1, 100e-6));
  EXPECT_EQ(PlanByTime(again, {}).SerializeAsString(),
            PlanByTime(predictor, {}).SerializeAsString());
}

// Where chunks are free the smallest are best; each of these costs as much as a millisecond of
// link.
TEST(TimePlannerTest, CutsNothingSmallerThanMessagesAreWorth) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 4, 4);
  ClusterModel cluster = Cluster(4, 10, 10e-6);
  cluster.message_cost = 1e-3;
  Predictor predictor(book, cluster);
  const Plan plan = PlanByTime(predictor, {});
  for (const BucketPlan& bucket : plan.buckets()) {
    EXPECT_TRUE(UsesFactors(bucket.scheme()) || bucket.chunks_size() == 1 ||
                bucket.chunks(0).size() * 4 >= 1 << 20)
        << bucket.name() << ": " << bucket.chunks_size() << " chunks";
  }
}

TEST(JobPlanTest, RecoveryNeedsUpdatesThatCanBeTakenBack) {
  Job job;
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  ModelSpec model = GoogLeNet(32);
  const Plan plan = PlanJob(InformationBook(model, 4, 4), job);
  for (const BucketPlan& bucket : plan.buckets()) {
    EXPECT_TRUE(bucket.update_at_workers()) << bucket.name();
  }
  const auto refusal = [&]() -> std::string {
    try {
      PlanJob(InformationBook(model, 4, 4), job);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  // Clipping and LARS, which are the worker's own.
  model.mutable_update_rule()->set_deferred(true);
  EXPECT_EQ(refusal(), "");
  model.mutable_update_rule()->set_type("MeanGradient");
  EXPECT_THAT(refusal(), testing::StartsWith("recovery.mode must be NONE: the training program"));
}

// LARS needs a layer's own gradient, and clipping the norm of all.
TEST(JobPlanTest, NothingGoesOnBeforeTheLastExchangeWhereGradientsAreClipped) {
  Job job;
  ModelSpec model = GoogLeNet(32);
  const auto waits = [&] { return PlanJob(InformationBook(model, 4, 4), job).wait_for_all(); };
  EXPECT_FALSE(waits());
  model.mutable_update_rule()->set_deferred(true);
  EXPECT_TRUE(waits());
  job.mutable_training()->mutable_large_batch()->mutable_lars();
  EXPECT_FALSE(waits());
}

TEST(JobPlanTest, TorchsRulesNeedServersThatUpdate) {
  Job job;
  Communication& communication = *job.mutable_communication();
  ModelSpec model = GoogLeNet(32);
  model.mutable_update_rule()->Clear();
  model.mutable_update_rule()->set_type("TorchAdamW");
  const auto refusal = [&]() -> std::string {
    try {
      PlanJob(InformationBook(model, 4, 4), job);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  communication.set_policy(Communication::ALL_PS);
  EXPECT_EQ(refusal(), "");
  communication.set_codec(BF16);
  EXPECT_THAT(refusal(),
              testing::HasSubstr("communication.policy must be ALL_PS, without a codec"));
  communication.clear_codec();
  communication.set_staleness(1);
  EXPECT_THAT(refusal(), testing::StartsWith("communication.staleness must be 0: the training "
                                             "program wants the servers to update (TorchAdamW)"));
  communication.clear_staleness();
  communication.set_policy(Communication::ALL_RING);
  EXPECT_THAT(refusal(), testing::HasSubstr("is updated by the workers"));
  communication.set_policy(Communication::ALL_PS);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  EXPECT_THAT(refusal(), testing::StartsWith("communication.update_at must be SERVERS"));
  communication.set_update_at(Communication::SERVERS);
  EXPECT_EQ(refusal(), "");
}

TEST(JobPlanTest, PredictsWhereTheNetworkIsKnown) {
  const ModelSpec model = GoogLeNet(32);
  const InformationBook book(model, 4, 4);
  Job job;
  job.mutable_cluster()->set_workers(4);
  job.mutable_cluster()->set_servers(4);
  EXPECT_EQ(PlanJob(book, job).iteration_ms(), 0);
  EXPECT_FALSE(PlanJob(book, job).buckets(0).has_prediction());
  job.mutable_communication()->set_policy(Communication::TIME);
  EXPECT_GT(PlanJob(book, job).iteration_ms(), 0);
  job.mutable_communication()->set_policy(Communication::ALL_RING);
  job.mutable_cluster()->mutable_network();
  const Plan ring = PlanJob(book, job);
  EXPECT_GT(ring.iteration_ms(), ring.compute_ms());
  EXPECT_TRUE(ring.buckets(0).has_prediction());
}

// A network that is no cluster on one switch: what is predicted for those that stand for it only
// says what is to be tried.
TEST(TimePlannerTest, WhereClustersStandForTheNetworkTheTrialDecides) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 4, 4);
  Predictor near(book, Cluster(4, 10, 50e-6));
  std::vector<Predictor> farther;
  farther.emplace_back(book, Cluster(4, 0.5, 20e-3));
  const Communication communication;
  const auto schemes = [](const Plan& plan) {
    std::vector<Scheme> all;
    for (const BucketPlan& bucket : plan.buckets()) all.push_back(bucket.scheme());
    return all;
  };
  // All take longer than anything that is predicted, but what is tried at last.
  std::vector<std::vector<Scheme>> seen;
  PlanByTime(
      near, communication,
      [&](const Plan& plan, TrialLength) {
        seen.push_back(schemes(plan));
        return 200.0;
      },
      farther);
  for (const Communication::Policy policy : kOthers) {
    Communication other;
    other.set_policy(policy);
    EXPECT_THAT(seen, testing::Contains(schemes(MakePlan(book, other))))
        << Communication::Policy_Name(policy);
  }
  const PlanTrial trial = [&](const Plan& plan, TrialLength) {
    return schemes(plan) == seen.back() ? 100.0 : 200.0;
  };
  EXPECT_EQ(PlanByTime(near, communication, trial, farther).simulated_ms(), 100e3);
  // What is as quick as computing leaves nothing to try.
  int tried = 0;
  PlanByTime(
      near, communication,
      [&](const Plan&, TrialLength length) {
        tried += length == TrialLength::kShort ? 1 : 0;
        return near.ComputeSeconds();
      },
      farther);
  EXPECT_EQ(tried, 1);
  // Nothing can be tried: as if all traffic went as far as can be.
  Predictor far(book, Cluster(4, 0.5, 20e-3));
  const Plan untried = PlanByTime(
      near, communication, [](const Plan&, TrialLength) { return std::nullopt; }, farther);
  EXPECT_EQ(untried.simulated_ms(), 0);
  const Plan expected = PlanByTime(far, communication);
  ASSERT_EQ(untried.buckets_size(), expected.buckets_size());
  for (int b = 0; b < expected.buckets_size(); ++b) {
    EXPECT_EQ(untried.buckets(b).scheme(), expected.buckets(b).scheme());
  }
}

// Workers that come to be apart late are seen by a long trial only.
TEST(TimePlannerTest, ALongTrialIsBelieved) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 4, 4);
  Predictor predictor(book, Cluster(4, 10, 50e-6));
  const Communication communication;
  std::string first;
  const auto by_length = [&](double of_the_first) {
    first.clear();
    const PlanTrial trial = [&, of_the_first](const Plan& plan, TrialLength length) {
      if (first.empty()) first = plan.SerializeAsString();
      return length == TrialLength::kLong && plan.SerializeAsString() == first ? of_the_first
                                                                               : 200.0;
    };
    return PlanByTime(predictor, communication, trial);
  };
  EXPECT_EQ(by_length(150).simulated_ms(), 150e3);
  EXPECT_EQ(by_length(300).simulated_ms(), 200e3);  // which is another plan's
}

}  // namespace
}  // namespace poseidon
