// Local steps (communication.local_steps) in virtual time: what the formula says of them, over
// random nets, clusters and exchanges; and that early fragments come to what late ones do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "planner/predictor.h"
#include "simulation/training_simulation.h"
#include "tests/simulation/predictions/planned_training.h"
#include "tests/simulation/training_case.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

class Draw {
 public:
  explicit Draw(uint32_t seed) : engine_(seed) {}
  int Int(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
  // All orders of magnitude alike.
  double Scale(double least, double most) {
    return std::exp(
        std::uniform_real_distribution<double>(std::log(least), std::log(most))(engine_));
  }

 private:
  std::mt19937 engine_;
};

ModelSpec RandomModel(Draw& draw) {
  ModelSpec model;
  model.set_batch(16);
  const int layers = draw.Int(1, 12);
  for (int l = 0; l < layers; ++l) {
    AddConvolution("layer" + std::to_string(l), 1, std::llround(draw.Scale(1000, 5e6)), 1, 1, false,
                   model);
    model.mutable_layers(l)->set_forward_ms(draw.Scale(0.05, 5));
    model.mutable_layers(l)->set_backward_ms(draw.Scale(0.1, 10));
  }
  return model;
}

void SetLocalSteps(int steps, int fragments, int overlap, Job& job) {
  job.mutable_communication()->set_local_steps(steps);
  job.mutable_communication()->set_fragments(fragments);
  job.mutable_communication()->set_overlap_steps(overlap);
}

Job RandomJob(Draw& draw) {
  const int workers = draw.Int(2, 8);
  const std::string bandwidth = std::to_string(std::lround(draw.Scale(100, 10000))) + "Mbps";
  Job job =
      PlannedJob(workers, workers, bandwidth.c_str(), draw.Int(0, 1) == 0 ? "20us" : "500us", true);
  constexpr Communication::Policy policies[] = {Communication::ALL_PS, Communication::ALL_RING,
                                                Communication::ALL_HALVING_DOUBLING};
  Communication& communication = *job.mutable_communication();
  communication.set_policy(policies[draw.Int(0, 2)]);
  const bool servers = communication.policy() == Communication::ALL_PS;
  constexpr WireCodec codecs[] = {FP32, BF16, INT8};
  communication.set_codec(codecs[draw.Int(0, servers ? 2 : 1)]);
  const int steps = draw.Int(2, 60);
  const int fragments = draw.Int(1, std::min(steps, 5));
  SetLocalSteps(steps, fragments, draw.Int(0, steps / fragments - 1), job);
  return job;
}

// How far the formula is off, as a share of what would be waited for without any overlap.
double ErrorOfTheFormula(const ModelSpec& model, const Job& job) {
  const SimulatedTraining training = SimulateTraining(job, model, {.warm_up = 3, .measured = 3});
  const int steps = job.communication().local_steps();
  Plan exposed = training.plan;
  exposed.set_overlap_steps(0);
  const InformationBook book(model, job.cluster());
  Predictor predictor(book, ClusterOf(job));
  const double compute = predictor.ComputeSeconds();
  EXPECT_NEAR(training.compute, compute, 1e-6);
  EXPECT_NEAR(training.busy, compute / training.iteration, 1e-3);
  const double exchanges = predictor.Predict(exposed).seconds / steps - compute;
  EXPECT_GT(exchanges, 0);
  return std::abs(training.plan.iteration_ms() / 1000 / steps - training.iteration) / exchanges;
}

// Rings end at all workers at the same time. Under servers, and in pairs, workers end an exchange,
// and begin the next one, one after the other, which the formula does not know.
void ExpectTheFormula(uint32_t begin, uint32_t end) {
  int others = 0, good = 0;
  double worst = 0;
  for (uint32_t seed = begin; seed < end; ++seed) {
    Draw draw(seed);
    const ModelSpec model = RandomModel(draw);
    const Job job = RandomJob(draw);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + job.ShortDebugString());
    const double error = ErrorOfTheFormula(model, job);
    if (job.communication().policy() == Communication::ALL_RING) {
      EXPECT_LT(error, 0.1);
      continue;
    }
    ++others;
    if (error < 0.1) ++good;
    worst = std::max(worst, error);
  }
  EXPECT_GE(good, 0.9 * others) << "of " << others;
  std::printf("within a tenth: %d of %d; the worst %.2f\n", good, others, worst);
}

TEST(LocalSteps, TakeWhatTheFormulaSays) { ExpectTheFormula(0, 400); }
TEST(LocalSteps, SlowTakeWhatTheFormulaSays) { ExpectTheFormula(400, 2000); }

// An exchange of every step's gradients, once in so many steps.
TEST(LocalSteps, MoveTheBytesOfOneStepInMany) {
  for (const WireCodec codec : {FP32, INT8}) {
    Draw draw(7);
    const ModelSpec model = RandomModel(draw);
    Job job = PlannedJob(4, 4, "1Gbps", "20us", true);
    job.mutable_communication()->set_policy(Communication::ALL_PS);
    job.mutable_communication()->set_codec(codec);
    const SteadyIterations steady = {.warm_up = 2, .measured = 2};
    const SimulatedTraining each = SimulateTraining(job, model, steady);
    SetLocalSteps(20, 4, 3, job);
    const SimulatedTraining local = SimulateTraining(job, model, steady);
    EXPECT_GT(each.bytes_sent, 0);
    EXPECT_DOUBLE_EQ(local.bytes_sent, each.bytes_sent / 20);
    EXPECT_DOUBLE_EQ(local.mean_bytes, each.mean_bytes / 20);
  }
}

// The largest share of an exchange that is under way at a time is a fragment's.
TEST(LocalSteps, AreHiddenWhereStepsTakeLonger) {
  Draw draw(3);
  const ModelSpec model = RandomModel(draw);
  Job job = PlannedJob(4, 4, "10Gbps", "20us", true);
  job.mutable_communication()->set_policy(Communication::ALL_RING);
  const SteadyIterations steady = {.warm_up = 2, .measured = 2};
  SetLocalSteps(20, 2, 0, job);
  const SimulatedTraining waiting = SimulateTraining(job, model, steady);
  EXPECT_GT(waiting.iteration, 1.001 * waiting.compute);
  SetLocalSteps(20, 2, 9, job);
  const SimulatedTraining hidden = SimulateTraining(job, model, steady);
  EXPECT_NEAR(hidden.iteration, hidden.compute, 1e-6 * hidden.compute);
}

// Gradients of a layer depend on that layer's values alone here, so that it does not matter when in
// an iteration they are exchanged; but a fragment that were used before it is fresh, or sent with
// values of another iteration, would.
TEST(LocalSteps, ComeToTheSameBitsHoweverFragmentsAreSpread) {
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_RING}) {
    SimulatedClusterOptions options = SmallTraining(
        3, 2, {DenseLayer("a", 50), DenseLayer("b", 300), DenseLayer("c", 7), DenseLayer("d", 120)},
        6, std::chrono::microseconds(100));
    options.job.mutable_communication()->set_policy(policy);
    options.job.mutable_communication()->set_deterministic(true);
    const auto train = [&] {
      SimulatedCluster cluster(options);
      EXPECT_TRUE(cluster.Run(kForever));
      ExpectAllEnded(cluster, ExitCode::kSuccess);
      return ParametersOf(cluster, 0);
    };
    const Parameters expected = train();
    for (const auto& [fragments, overlap] : {std::pair(1, 0), {2, 0}, {3, 1}, {4, 2}}) {
      SetLocalSteps(12, fragments, overlap, options.job);
      EXPECT_EQ(train(), expected) << fragments << " fragments, overlap " << overlap;
    }
  }
}

}  // namespace
}  // namespace poseidon
