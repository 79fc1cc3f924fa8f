// What failures cost, as `poseidon simulate --failures` answers it.
#include "simulation/failures/failure_simulation.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "simulation/training_simulation.h"
#include "tests/simulation/predictions/planned_training.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr double kHour = 3600;

// Layers of random sizes and times.
ModelSpec RandomModel(std::mt19937_64& random) {
  ModelSpec model;
  const int layers = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < layers; ++i) {
    LayerSpec& layer = *model.add_layers();
    layer.set_name("layer" + std::to_string(i));
    layer.add_blobs()->add_shape(1000 + static_cast<int64_t>(random() % 2'000'000));
    layer.set_forward_ms(1 + static_cast<double>(random() % 20));
    layer.set_backward_ms(2 + static_cast<double>(random() % 40));
  }
  model.set_batch(32);
  return model;
}

ModelSpec SomeModel() {
  std::mt19937_64 random(1);
  return RandomModel(random);
}

Job JobOf(int workers, int servers, Communication::Policy policy) {
  Job job = PlannedJob(workers, servers, "10Gbps", "50us", true);
  job.mutable_communication()->set_policy(policy);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  return job;
}

const std::vector<Communication::Policy>& Policies() {
  static const std::vector<Communication::Policy> policies = {
      Communication::ALL_PS, Communication::BYTES, Communication::ALL_RING,
      Communication::ALL_HALVING_DOUBLING, Communication::ALL_TORUS};
  return policies;
}

// Seconds that went into nothing that is kept.
double Lost(const FailureCosts& costs) { return costs.wall - costs.kept * costs.iteration; }

class FailureSimulationTest : public testing::Test {
 protected:
  void SetUp() override { FLAGS_minloglevel = google::GLOG_FATAL; }
};

TEST_F(FailureSimulationTest, NothingIsLostWhereNearlyNothingFails) {
  for (const Communication::Policy policy : Policies()) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    const FailureCosts costs = SimulateFailures(
        JobOf(4, 4, policy), SomeModel(), {.mtbf = 1e9 * kHour, .replacement = 30, .losses = 3});
    EXPECT_NEAR(costs.Goodput(), 1, 1e-9);
    EXPECT_LT(costs.Goodput(), 1);
  }
}

// The plan has parts by what the job knows of its workers, as without failures.
TEST_F(FailureSimulationTest, ABalancedBatchHidesASlowWorkerAsWithoutFailures) {
  Job job = JobOf(4, 4, Communication::ALL_PS);
  Deviation& slow = *job.mutable_cluster()->add_deviation();
  slow.set_worker(2);
  slow.set_compute_factor(2);
  const ModelSpec model = Layers(8, 10'000, 10, 20);
  const FailureScenario scenario{.mtbf = 1e9 * kHour, .replacement = 30, .losses = 1};
  const double equal = SimulateFailures(job, model, scenario).iteration;
  job.mutable_training()->set_batch(Training::BALANCED);
  const double balanced = SimulateFailures(job, model, scenario).iteration;
  EXPECT_GT(equal / balanced, 1.5);
  const SteadyIterations steady{.warm_up = WarmUpIterations(job), .measured = 3};
  EXPECT_NEAR(balanced, SimulateTraining(job, model, steady).iteration, 0.01 * balanced);
}

TEST_F(FailureSimulationTest, GoodputRisesWithTheTimeBetweenFailures) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    double before = 0;
    for (const double hours : {0.2, 1.0, 5.0, 25.0, 1000.0}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(hours) + " h");
      const FailureCosts costs =
          SimulateFailures(JobOf(3, 2, Communication::ALL_PS), SomeModel(),
                           {.mtbf = hours * kHour, .replacement = 30, .seed = seed, .losses = 10});
      EXPECT_GT(costs.Goodput(), before);
      before = costs.Goodput();
    }
    EXPECT_LT(before, 1);
  }
}

TEST_F(FailureSimulationTest, EveryLossIsRecovered) {
  std::mt19937_64 random(7);
  for (const Communication::Policy policy : Policies()) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(Communication::Policy_Name(policy) + ", seed " + std::to_string(seed));
      const Job job = JobOf(4, 3, policy);
      const FailureCosts costs =
          SimulateFailures(job, RandomModel(random),
                           {.mtbf = 1000 * kHour, .replacement = 30, .seed = seed, .losses = 12});
      EXPECT_EQ(costs.losses, 12);
      EXPECT_EQ(costs.recoveries, 12);
      EXPECT_LE(costs.redone, 2 * 12);
      EXPECT_EQ(costs.workers, 4);
      const Communication& communication = job.communication();
      EXPECT_LE(costs.detected, communication.heartbeat_deadline_seconds());
      EXPECT_GE(costs.detected, communication.heartbeat_deadline_seconds() -
                                    communication.heartbeat_interval_seconds() - 0.1);
      // Until the replacement is there, and what is redone; but servers without KV pairs are not
      // missed before they are noticed.
      EXPECT_GE(Lost(costs),
                12 * (30 - communication.heartbeat_deadline_seconds() - costs.iteration));
      EXPECT_LE(Lost(costs), 12 * (31 + 3 * costs.iteration));
    }
  }
}

TEST_F(FailureSimulationTest, LossesInARecoveryAreSurvived) {
  const FailureCosts costs =
      SimulateFailures(JobOf(4, 4, Communication::ALL_PS), SomeModel(),
                       {.mtbf = 0.1 * kHour, .replacement = 30, .losses = 30});
  EXPECT_EQ(costs.losses, 30);
  EXPECT_LT(costs.recoveries, 30) << "no two losses came together";
  EXPECT_GT(costs.Goodput(), 0.2);
  EXPECT_LT(costs.Goodput(), 0.8);
}

// The job's own deadline decides when a loss is noticed.
TEST_F(FailureSimulationTest, HeartbeatsAreTheJobs) {
  Job job = JobOf(4, 4, Communication::ALL_PS);
  job.mutable_communication()->set_heartbeat_interval_seconds(0.25);
  job.mutable_communication()->set_heartbeat_deadline_seconds(2);
  const FailureScenario scenario{.mtbf = 100 * kHour, .replacement = 0.5, .losses = 6};
  const FailureCosts quick = SimulateFailures(job, SomeModel(), scenario);
  EXPECT_LE(quick.detected, 2);
  EXPECT_GE(quick.detected, 1.7);
  job.mutable_communication()->set_heartbeat_deadline_seconds(20);
  const FailureCosts slow = SimulateFailures(job, SomeModel(), scenario);
  EXPECT_NEAR(slow.detected - quick.detected, 18, 0.3);
  // Losses of servers without KV pairs cost nothing until they are noticed.
  EXPECT_GT(Lost(slow), Lost(quick) + 18);
  // Longer than a process asks for a place.
  job.mutable_communication()->set_heartbeat_deadline_seconds(100);
  EXPECT_NEAR(SimulateFailures(job, SomeModel(), scenario).detected, 99.9, 0.3);
}

// With the iterations between losses counted instead of simulated the answer is the same, but for
// when in an iteration and between two heartbeats a node dies, and for how well the mean iteration
// is known that is counted with. Machines vary here as real ones do: those that never vary fall
// into one of several rhythms, and into another one by a recovery, in which an iteration takes
// several hundredths more or less, for ever.
void ExpectSameAsWhole(uint64_t begin, uint64_t end) {
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const ModelSpec model = RandomModel(random);
    Job job = JobOf(4, 1 + static_cast<int>(random() % 4), Policies()[random() % 5]);
    DisturbUnlessSaid(*job.mutable_cluster());
    job.mutable_cluster()->mutable_disturbance()->set_seed(seed);
    Communication& communication = *job.mutable_communication();
    communication.set_heartbeat_interval_seconds(0.1 * static_cast<double>(1 + random() % 5));
    communication.set_heartbeat_deadline_seconds(2);
    FailureScenario scenario;
    scenario.mtbf = 40 + static_cast<double>(random() % 400);
    scenario.replacement = 0.5 + static_cast<double>(random() % 8);
    scenario.seed = seed;
    scenario.losses = 4;
    const FailureCosts counted = SimulateFailures(job, model, scenario);
    scenario.whole = true;
    const FailureCosts whole = SimulateFailures(job, model, scenario);
    EXPECT_EQ(counted.losses, whole.losses);
    EXPECT_EQ(counted.iteration, whole.iteration);
    EXPECT_EQ(whole.simulated, whole.kept);
    EXPECT_LT(counted.simulated, whole.simulated);
    constexpr double kMeanIteration = 0.01;
    const double bound =
        scenario.losses * (communication.heartbeat_interval_seconds() + 2 * whole.iteration) +
        kMeanIteration * whole.wall;
    EXPECT_NEAR(Lost(counted), Lost(whole), bound);
    EXPECT_NEAR(counted.Goodput(), whole.Goodput(), bound / whole.wall);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_F(FailureSimulationTest, CountedIterationsAreAsGoodAsSimulatedOnes) {
  ExpectSameAsWhole(0, 5);
}
TEST_F(FailureSimulationTest, SlowCountedIterationsAreAsGoodAsSimulatedOnes) {
  ExpectSameAsWhole(5, 500);
}

TEST_F(FailureSimulationTest, ThoseThatGoOnWithoutTheLostTrainFewerSamples) {
  Job job = JobOf(8, 8, Communication::ALL_PS);
  job.mutable_recovery()->set_mode(Recovery::SHRINK);
  const FailureScenario scenario{.mtbf = 1000 * kHour, .replacement = 30, .seed = 2, .losses = 5};
  const FailureCosts costs = SimulateFailures(job, SomeModel(), scenario);
  EXPECT_EQ(costs.recoveries, 5);
  EXPECT_LT(costs.workers, 8);
  EXPECT_GE(costs.workers, 3);
  EXPECT_LT(costs.restored, 1) << "nobody is waited for";
  // No iteration is quicker than its computing, and none counts as more than the share of those
  // that are left at the end at least.
  EXPECT_LT(costs.Goodput(), 1);
  EXPECT_GT(costs.Goodput(), costs.workers / 8.0);
}

// How long iterations of those that are left take is measured anew after each loss; where machines
// vary in as many as before the first.
void ExpectFewerWorkersSameAsWhole(bool varies, uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Job job = JobOf(8, 8, Policies()[seed]);
    if (varies) DisturbUnlessSaid(*job.mutable_cluster());
    job.mutable_recovery()->set_mode(Recovery::SHRINK);
    FailureScenario scenario{.mtbf = 800, .replacement = 30, .seed = seed, .losses = 4};
    const FailureCosts counted = SimulateFailures(job, SomeModel(), scenario);
    scenario.whole = true;
    const FailureCosts whole = SimulateFailures(job, SomeModel(), scenario);
    EXPECT_EQ(counted.workers, whole.workers);
    EXPECT_LT(counted.simulated, whole.simulated);
    const double per_loss = job.communication().heartbeat_interval_seconds() + 2 * whole.iteration;
    EXPECT_NEAR(counted.Goodput(), whole.Goodput(),
                scenario.losses * per_loss / whole.wall + 0.002 * whole.Goodput());
    EXPECT_EQ(whole.counted, 0);
    EXPECT_NEAR(static_cast<double>(counted.counted + counted.simulated),
                static_cast<double>(whole.simulated), 0.01 * static_cast<double>(whole.simulated));
  }
}

TEST_F(FailureSimulationTest, CountedIterationsOfFewerWorkersAreAsGood) {
  ExpectFewerWorkersSameAsWhole(false, 3);
}
TEST_F(FailureSimulationTest, CountedIterationsOfFewerWorkersThatVaryAreAsGood) {
  ExpectFewerWorkersSameAsWhole(true, 1);
}

// Before the first loss nothing is lost, so that its iterations are as long as they were measured.
TEST_F(FailureSimulationTest, UntilTheFirstLossAnIterationIsAsItWasMeasured) {
  Job job = JobOf(4, 4, Communication::ALL_RING);
  DisturbUnlessSaid(*job.mutable_cluster());
  job.mutable_recovery()->set_mode(Recovery::SHRINK);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const FailureCosts costs = SimulateFailures(
        job, SomeModel(), {.mtbf = 1000 * kHour, .replacement = 30, .seed = seed, .losses = 1});
    EXPECT_NEAR(costs.Goodput(), 1, 1e-4) << seed;
  }
}

TEST_F(FailureSimulationTest, ShrinkingToNobodyIsRefused) {
  Job job = JobOf(2, 2, Communication::ALL_PS);
  job.mutable_recovery()->set_mode(Recovery::SHRINK);
  try {
    SimulateFailures(job, SomeModel(), {.mtbf = 1000 * kHour, .replacement = 30, .losses = 4});
    FAIL() << "four losses of four nodes";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is of the last "));
    EXPECT_THAT(error.what(), HasSubstr("ask for fewer losses"));
  }
}

TEST_F(FailureSimulationTest, SaysHowFarItIs) {
  std::vector<double> shares;
  SimulationControl control;
  control.progress = [&](const SimulationProgress& progress) { shares.push_back(progress.share); };
  SimulateFailures(JobOf(12, 12, Communication::ALL_RING), SomeModel(),
                   {.mtbf = 1000 * kHour, .replacement = 30, .losses = 6}, control);
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.back(), 0.3);
  EXPECT_LE(shares.back(), 1);
}

}  // namespace
}  // namespace poseidon
