// What a simulated training takes whose workers or machines are not alike, against what can be
// worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "simulation/training_simulation.h"
#include "tests/simulation/predictions/planned_training.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SteadyIterations kSteady{.warm_up = 3, .measured = 3};
constexpr double kBytesPerSecond = 1.25e9;  // 10 Gb/s

Condition ConditionOf(int worker, double compute_factor, const char* bandwidth) {
  Condition condition;
  condition.set_name("one is slow");
  Deviation& deviation = *condition.add_deviation();
  deviation.set_worker(worker);
  deviation.set_compute_factor(compute_factor);
  if (bandwidth != nullptr) deviation.set_bandwidth(bandwidth);
  return condition;
}

TEST(UnlikeWorkersTest, ASlowWorkerHoldsUpAllOthers) {
  const ModelSpec model = Layers(5, 1000, 10, 20);
  const Job job = FreeLanesJob(4, 4, Communication::ALL_PS);
  const SimulatedTraining alike = SimulateTraining(job, model, kSteady);
  EXPECT_NEAR(alike.iteration, 0.150, 0.001);
  const SimulatedTraining slow =
      SimulateTraining(job, model, kSteady, ConditionOf(2, 1.5, nullptr));
  EXPECT_NEAR(slow.iteration, 0.225, 0.001);
  EXPECT_EQ(slow.compute, alike.compute);
  // The three others stand still for a third of it.
  EXPECT_NEAR(slow.busy, (3 * 2.0 / 3 + 1) / 4, 0.01);
}

// A known slow worker stays slow, whatever else befalls it.
TEST(UnlikeWorkersTest, AConditionComesOnTopOfWhatTheJobKnows) {
  const ModelSpec model = Layers(5, 1000, 10, 20);
  Job job = FreeLanesJob(4, 4, Communication::ALL_PS);
  Deviation& known = *job.mutable_cluster()->add_deviation();
  known.set_worker(2);
  known.set_compute_factor(2);
  Condition condition = ConditionOf(2, 1, "5Gbps");
  condition.mutable_deviation(0)->clear_compute_factor();
  EXPECT_NEAR(SimulateTraining(job, model, kSteady, condition).iteration, 0.300, 0.001);
  condition.mutable_deviation(0)->set_compute_factor(1.5);
  EXPECT_NEAR(SimulateTraining(job, model, kSteady, condition).iteration, 0.450, 0.001);
}

// Of a slow worker the planner knows, or does not.
void ExpectWithStaleness(int staleness, double slowness, double seconds, double busy) {
  const ModelSpec model = Layers(5, 1000, 10, 20);
  Job job = FreeLanesJob(4, 4, Communication::ALL_PS);
  job.mutable_communication()->set_staleness(staleness);
  const Condition condition = ConditionOf(2, slowness, nullptr);
  const SimulatedTraining unknown = SimulateTraining(job, model, kSteady, condition);
  *job.mutable_cluster()->add_deviation() = condition.deviation(0);
  const SimulatedTraining known = SimulateTraining(job, model, kSteady);
  for (const SimulatedTraining& training : {unknown, known}) {
    EXPECT_NEAR(training.iteration, seconds, 0.01 * seconds);
    EXPECT_NEAR(training.busy, busy, 0.01);
  }
  EXPECT_NEAR(known.plan.iteration_ms(), 1000 * seconds, 0.01 * 1000 * seconds);
}

// Others are ahead of it for a while, and in the long run wait for it.
TEST(UnlikeWorkersTest, StalenessDoesNotHideASlowWorker) {
  ExpectWithStaleness(40, 2, 0.300, (3 * 0.5 + 1) / 4);
}

// Nobody waits, and what they train in a second adds up.
TEST(UnlikeWorkersTest, WithoutWaitingRatesAddUp) {
  ExpectWithStaleness(-1, 2, 4 * 0.150 / (3 + 0.5), 1);
  ExpectWithStaleness(-1, 0.5, 4 * 0.150 / (3 + 2), 1);
  ExpectWithStaleness(-1, 40, 4 * 0.150 / (3 + 0.025), 1);
}

// While others train, too, not when they have left the network to it.
TEST(UnlikeWorkersTest, WithoutWaitingASlowWorkerIsMeasuredBesideTheOthers) {
  constexpr int kWorkers = 8;
  constexpr double kBytes = 4 << 20;
  const ModelSpec model = Layers(1, 1 << 20, 4, 6);
  Job job = FreeLanesJob(kWorkers, 1, Communication::ALL_PS);
  job.mutable_cluster()->mutable_network()->set_colocated(false);
  job.mutable_communication()->set_staleness(-1);
  Condition condition;
  for (int worker = 0; worker < kWorkers / 2; ++worker) {
    *condition.add_deviation() = ConditionOf(worker, 2, nullptr).deviation(0);
  }
  const SteadyIterations steady{.warm_up = 20, .measured = 10};
  const double least = kWorkers * kBytes / kBytesPerSecond;  // the server's link
  EXPECT_NEAR(SimulateTraining(job, model, steady, condition).iteration, least, 0.02 * least);
}

TEST(UnlikeWorkersTest, ASlowLinkHoldsUpTheWholeRing) {
  const ModelSpec model = Layers(16, 1 << 18, 0, 0);
  const Job job = FreeLanesJob(4, 4, Communication::ALL_RING);
  const double bytes = 16.0 * (1 << 20);
  const double alike = SimulateTraining(job, model, kSteady).iteration;
  EXPECT_NEAR(alike, 2 * bytes * 3 / 4 / kBytesPerSecond, 0.1 * alike);
  const double slow = SimulateTraining(job, model, kSteady, ConditionOf(1, 1, "2.5Gbps")).iteration;
  EXPECT_NEAR(slow, 4 * 2 * bytes * 3 / 4 / kBytesPerSecond, 0.1 * slow);
}

TEST(UnlikeWorkersTest, RefusesConditionsOfNobody) {
  const ModelSpec model = Layers(1, 1000, 1, 1);
  const Job job = FreeLanesJob(2, 2, Communication::ALL_PS);
  const auto message = [&](const Condition& condition) {
    return MessageOf<ConfigError>([&] { SimulateTraining(job, model, kSteady, condition); });
  };
  EXPECT_THAT(message(ConditionOf(2, 1, nullptr)),
              HasSubstr("condition 'one is slow' is about worker 2; the cluster has 2 workers"));
  EXPECT_THAT(message(ConditionOf(-1, 1, nullptr)), HasSubstr("worker -1"));
  EXPECT_THAT(message(ConditionOf(0, 0, nullptr)), HasSubstr("compute_factor is 0"));
}

// Of four workers one computes half as fast.
TEST(UnlikeWorkersTest, ABalancedBatchHidesASlowWorker) {
  Condition slow;
  Deviation& deviation = *slow.add_deviation();
  deviation.set_worker(2);
  deviation.set_compute_factor(2);
  ModelSpec model = Layers(8, 10000, 10, 20);  // 240 ms, and next to nothing to send
  model.set_batch(32);
  for (const Communication::Policy policy : {Communication::ALL_PS, Communication::ALL_RING}) {
    Job job = FreeLanesJob(4, 4, policy);
    const SimulatedTraining even = SimulateTraining(job, model, kSteady);
    const SimulatedTraining equal = SimulateTraining(job, model, kSteady, slow);
    job.mutable_training()->set_batch(Training::BALANCED);
    const SimulatedTraining balanced = SimulateTraining(job, model, kSteady, slow);
    EXPECT_THAT(balanced.plan.parts(), ElementsAre(37, 37, 18, 36));
    EXPECT_NEAR(equal.iteration / even.iteration, 2, 0.05);
    // 37 of 32 samples' time, where equal parts take twice that of 32: 1.73 times the images.
    EXPECT_NEAR(equal.iteration / balanced.iteration, 2 * 32 / 37.0, 0.05);
    EXPECT_GT(equal.iteration / balanced.iteration, 1.5);
    ModelSpec of_passes = model;
    of_passes.set_batch(64);
    of_passes.set_passes(2);
    const SimulatedTraining passes = SimulateTraining(job, of_passes, kSteady, slow);
    EXPECT_THAT(passes.plan.parts(), ElementsAre(37, 37, 18, 36));
    EXPECT_NEAR(passes.iteration, balanced.iteration, 1e-6);
  }
}

TEST(UnlikeWorkersTest, GivenPartsOfABatchAreObeyed) {
  ModelSpec model = Layers(8, 10000, 10, 20);
  model.set_batch(32);
  Job job = FreeLanesJob(2, 2, Communication::ALL_PS);
  const double equal = SimulateTraining(job, model, kSteady).iteration;
  job.mutable_training()->set_batch(Training::BALANCED);
  job.mutable_training()->add_part(48);
  job.mutable_training()->add_part(16);
  EXPECT_NEAR(SimulateTraining(job, model, kSteady).iteration / equal, 1.5, 0.05);
  // They are of one pass, whose time is half of what the model says here.
  model.set_batch(64);
  model.set_passes(2);
  EXPECT_NEAR(SimulateTraining(job, model, kSteady).iteration / equal, 1.5, 0.05);
}

}  // namespace
}  // namespace poseidon
