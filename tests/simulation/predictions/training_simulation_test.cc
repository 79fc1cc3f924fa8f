// What a simulated training models beside the network, against what can be worked out by hand.
#include "simulation/training_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.h"
#include "planner/job_plan.h"
#include "simulation/cluster_layout.h"
#include "simulation/phantom_training.h"
#include "tests/simulation/predictions/planned_training.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SteadyIterations kSteady{.warm_up = 3, .measured = 3};
constexpr double kBytesPerSecond = 1.25e9;  // 10 Gb/s

constexpr int64_t kOutputs = 1000;
constexpr int64_t kInputs = 2000;
constexpr int64_t kRows = 32;

ModelSpec InnerProduct() {
  ModelSpec model = Layers(1, kOutputs * kInputs, 1, 2);
  InnerProductSpec& product = *model.mutable_layers(0)->mutable_inner_product();
  product.set_outputs(kOutputs);
  product.set_inputs(kInputs);
  product.set_rows(kRows);
  return model;
}

double Iteration(const Job& job, const ModelSpec& model) {
  return SimulateTraining(job, model, kSteady).iteration;
}

// A worker that clips has the norm of the whole gradient before its first update.
TEST(TrainingSimulationTest, ClippingIsPlannedAsWorkersThatClipTrain) {
  Job job = FreeLanesJob(4, 4, Communication::ALL_PS);
  job.mutable_communication()->set_lanes(1);
  ModelSpec model = Layers(8, 1'000'000, 2, 4);
  // Unless it is waited for it is on its way while the others compute.
  model.mutable_layers(7)->mutable_blobs(0)->set_shape(0, 20'000'000);
  const auto planned = [&] { return PlanJob(InformationBook(model, job.cluster()), job); };
  const double unclipped = planned().iteration_ms();
  model.mutable_update_rule()->set_deferred(true);
  const Plan plan = planned();
  constexpr int kIterations = 6;
  SimulatedClusterOptions options = PhantomTraining(job, model, kIterations);
  options.work.deferred.clip_gradients = 1;
  options.planner = [&plan](const InformationBook&, const Job&) {
    Plan silent = plan;
    silent.set_wait_for_all(false);  // so that whoever waits does it for the norm
    return silent;
  };
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(Time::max()));
  const std::vector<IterationTimes>& iterations = cluster.trainer(0).iterations;
  ASSERT_EQ(iterations.size(), kIterations);
  const double milliseconds = 1000 * ToSeconds(iterations[5].end - iterations[2].end) / 3;
  EXPECT_NEAR(plan.iteration_ms(), milliseconds, 0.01 * milliseconds);
  EXPECT_LT(unclipped, plan.iteration_ms());
}

// Groups of machines.

TEST(ClusterLayoutTest, TiersGroupConsecutiveMachines) {
  Job job = FreeLanesJob(5, 7, Communication::ALL_PS);
  Network& network = *job.mutable_cluster()->mutable_network();
  network.set_goodput_share(0.5);
  Tier& inner = *network.add_tier();
  inner.set_members(2);
  inner.set_bandwidth("16Gbps");
  Tier& outer = *network.add_tier();
  outer.set_members(3);
  outer.set_bandwidth("8Gbps");
  outer.set_latency("3us");
  const ClusterLayout layout = ColocatedLayout(job, NicSpec());
  ASSERT_EQ(layout.machines.size(), 8u);  // the last is the scheduler's
  ASSERT_EQ(layout.groups.size(), 6u);
  EXPECT_THAT(layout.group_of, ElementsAre(2, 2, 3, 3, 4, 4, 5));
  const int parents[] = {kNoGroup, kNoGroup, 0, 0, 0, 1};
  for (int g = 0; g < 6; ++g) {
    EXPECT_EQ(layout.groups[g].parent, parents[g]);
    EXPECT_EQ(layout.groups[g].uplink.goodput_bytes_per_second, g < 2 ? 0.5e9 : 1e9);
    EXPECT_EQ(layout.groups[g].uplink.latency, Duration(g < 2 ? 3000 : 0));
  }
  EXPECT_EQ(layout.nodes[layout.IndexOf({Role::kServer, 6})].machine, 6);
  EXPECT_EQ(layout.nodes[layout.IndexOf({Role::kScheduler, 0})].machine, 7);
}

// Each rack's four workers send the half of their gradients, and its servers the half of their
// values, to the other rack: 4 M, over an uplink that carries what one machine does.
TEST(TrainingSimulationTest, OversubscribedRacksAreAsSlowAsTheirUplinks) {
  const ModelSpec model = Layers(32, 1 << 18, 0, 0);
  Job job = FreeLanesJob(8, 8, Communication::ALL_PS);
  const double flat = Iteration(job, model);
  Tier& rack = *job.mutable_cluster()->mutable_network()->add_tier();
  rack.set_members(4);
  rack.set_bandwidth("10Gbps");
  const double bytes = 32.0 * (1 << 20);
  EXPECT_NEAR(flat, 2 * bytes * 7 / 8 / kBytesPerSecond, 0.1 * flat);
  const double racks = Iteration(job, model);
  EXPECT_NEAR(racks, 4 * bytes / kBytesPerSecond, 0.1 * racks);
  rack.set_bandwidth("1Tbps");
  EXPECT_NEAR(Iteration(job, model), flat, 0.02 * flat);
}

// Devices.

TEST(TrainingSimulationTest, DevicesReduceAndCopyBeforeAndAfterTheExchange) {
  const ModelSpec model = InnerProduct();
  constexpr double kLink = 2.5e9;  // 20 Gb/s
  constexpr double kCopy = 5e8;    // 4 Gb/s
  const double gradient = 4.0 * kOutputs * kInputs;
  const double factors = 4.0 * kRows * (kOutputs + kInputs);
  struct Case {
    Communication::Policy policy;
    double seconds;
  };
  const Case cases[] = {
      {Communication::ALL_PS, 2 * (0.75 * gradient / kLink + gradient / 4 / kCopy)},
      {Communication::ALL_RING, 2 * (0.75 * gradient / kLink + gradient / 4 / kCopy)},
      // Two workers' factors come back.
      {Communication::ALL_SFB,
       factors / 4 / kCopy + 2 * factors / 4 / kCopy + 0.75 * 2 * factors / kLink}};
  for (const Case& tried : cases) {
    SCOPED_TRACE(Communication::Policy_Name(tried.policy));
    Job job = FreeLanesJob(2, 2, tried.policy);
    const SimulatedTraining without = SimulateTraining(job, model, kSteady);
    job.mutable_cluster()->set_devices_per_worker(4);
    job.mutable_cluster()->set_device_bandwidth("20Gbps");
    job.mutable_cluster()->set_copy_bandwidth("4Gbps");
    const SimulatedTraining with = SimulateTraining(job, model, kSteady);
    EXPECT_NEAR(with.iteration - without.iteration, tried.seconds, 1e-6);
    EXPECT_EQ(with.bytes_sent, without.bytes_sent);
    EXPECT_NEAR(with.plan.iteration_ms() - without.plan.iteration_ms(), 1000 * tried.seconds, 1e-3);
  }
}

// The copies of a layer hide behind the backward pass of those below it, as exchanges do, and one
// stream copies one layer after the other.
TEST(TrainingSimulationTest, CopiesOverlapWithComputingAndQueueUp) {
  const ModelSpec model = Layers(10, 250000, 5, 10);  // 1 MB each
  Job job = FreeLanesJob(2, 2, Communication::ALL_PS);
  const double alone = Iteration(job, model);
  job.mutable_cluster()->set_copy_bandwidth("1Gbps");  // 8 ms a layer and direction
  const double copied = Iteration(job, model);
  // Only the last layer's, down and up, is seen.
  EXPECT_NEAR(copied - alone, 2 * 8e-3, 1e-3);
  job.mutable_cluster()->set_copy_bandwidth("500Mbps");  // 16 ms a layer: more than its 10 ms
  const double slow = Iteration(job, model);
  EXPECT_NEAR(slow, 10e-3 + 10 * 16e-3 + 16e-3 + 10 * 5e-3, 10e-3);
}

// What lanes do with what arrives.

// Over a network that takes hardly any time.
TEST(TrainingSimulationTest, SumsUpdatesAndRebuildsTakeTheirTime) {
  const ModelSpec model = InnerProduct();
  constexpr double kAdd = 2e9;
  constexpr double kUpdate = 1e9;
  constexpr double kFlops = 1e11;
  const double floats = kOutputs * kInputs;
  const double update = 4 * floats / kUpdate;
  const double rebuild = 2 * 2 * kRows * floats / kFlops + update;
  struct Case {
    Communication::Policy policy;
    double seconds;
  };
  const Case cases[] = {
      // One chunk on one server, whose lane adds up two gradients; both are there at once.
      {Communication::ALL_PS, 2 * 4 * floats / kAdd + update},
      // A half is added up by each, and the other half is the sum.
      {Communication::ALL_RING, 2 * floats / kAdd + update},
      {Communication::ALL_SFB, rebuild},
      {Communication::ALL_ADAM, rebuild}};
  for (const Case& tried : cases) {
    SCOPED_TRACE(Communication::Policy_Name(tried.policy));
    Job job = FreeLanesJob(2, 1, tried.policy);
    job.mutable_cluster()->mutable_network()->set_bandwidth("100Tbps");
    job.mutable_cluster()->mutable_network()->set_latency("0us");
    job.mutable_communication()->set_kv_pair_bytes(8 * kOutputs * kInputs);
    const SimulatedTraining free = SimulateTraining(job, model, kSteady);
    job.mutable_cluster()->set_reduction_rate(kAdd);
    job.mutable_cluster()->set_update_rate(kUpdate);
    job.mutable_cluster()->set_flops(kFlops);
    const SimulatedTraining busy = SimulateTraining(job, model, kSteady);
    EXPECT_NEAR(busy.iteration - free.iteration, tried.seconds, 0.01 * tried.seconds);
    EXPECT_NEAR(busy.plan.iteration_ms(), 1000 * busy.iteration, 0.02 * 1000 * busy.iteration);
  }
}

// As many messages are expected as arrive, so that the time that is left can be told.
TEST(TrainingSimulationTest, TellsHowFarItIs) {
  constexpr int kWorkers = 64;
  constexpr int kLayers = 6;
  const auto expect = [&](Communication::Policy policy, int messages_a_worker) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    std::vector<SimulationProgress> calls;
    SimulationControl control;
    control.progress = [&](const SimulationProgress& progress) { calls.push_back(progress); };
    const int iterations = 300'000 / (kWorkers * kLayers * messages_a_worker);
    SimulateTraining(FreeLanesJob(kWorkers, kWorkers, policy), Layers(kLayers, 200'000, 1, 1),
                     {.warm_up = 2, .measured = iterations - 2}, {}, control);
    // Every tenth of a second, so how many there are is the machine's affair.
    ASSERT_GE(calls.size(), 1);
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_NEAR(calls[i].share, static_cast<double>(calls[i].messages) / 300'000, 0.1);
      EXPECT_GT(calls[i].messages, i == 0 ? 0 : calls[i - 1].messages);
    }
  };
  expect(Communication::ALL_PS, 2);
  expect(Communication::ALL_RING, 2 * 63);
  expect(Communication::ALL_HALVING_DOUBLING, 2 * 6);
  expect(Communication::ALL_TORUS, 2 * 2 * 7);
}

TEST(TrainingSimulationTest, RefusesWhatTakesMoreMemoryThanThereIs) {
  const ModelSpec model = Layers(1, 1000, 1, 1);
  const auto message = [&](const Job& job, const SteadyIterations& steady, int simulations = 1) {
    SimulationControl control;
    control.memory = 1'000'000'000;
    control.simulations = simulations;
    return MessageOf<Error>([&] { SimulateTraining(job, model, steady, {}, control); });
  };
  const std::string refusal =
      "simulating 6 iterations of 100000 workers and 100000 servers takes about 2.6 GB of memory, "
      "and 1.0 GB are available; simulate fewer";
  const Job large = FreeLanesJob(100'000, 100'000, Communication::ALL_PS);
  EXPECT_EQ(message(large, kSteady), refusal);
  // Others may have taken what it lacks.
  EXPECT_EQ(message(large, kSteady, 4), refusal + ", or give fewer --threads");
  EXPECT_THAT(
      message(FreeLanesJob(2, 2, Communication::ALL_PS), {.warm_up = 2, .measured = 2147483645}),
      HasSubstr("simulating 2147483647 iterations of 2 workers and 2 servers takes about "));
}

// Which of several has taken it can't be seen, so that none is told to be too large by itself.
TEST(TrainingSimulationTest, MemoryThatSeveralSimulationsTakeIsSaidToBeOfAll) {
  const Job job = FreeLanesJob(2, 2, Communication::ALL_PS);
  Envelope envelope;
  envelope.to.node = {Role::kWorker, 0};
  for (const int simulations : {1, 4}) {
    SimulationControl control;
    control.memory = 10'000'000;
    control.simulations = simulations;
    SimulationWatch watch(control, job.cluster(), 1, 6);
    const std::vector<char> taken(64 << 20, 'x');
    const std::string message = MessageOf<Error>([&] {
      for (int i = 0; i < 10'000; ++i) watch.OnMessage(envelope);
    });
    ASSERT_EQ(taken.back(), 'x');
    const std::string all = "all simulations of this process together take about ";
    const std::string one = "simulating 6 iterations of 2 workers and 2 servers takes about ";
    EXPECT_THAT(message, testing::StartsWith(simulations == 1 ? one : all));
    EXPECT_THAT(message, testing::EndsWith(simulations == 1 ? "; simulate fewer"
                                                            : "; give fewer --threads"));
  }
}

// Each rate is in its range, but nobody waits for 2 GB over 100 Kb/s.
TEST(TrainingSimulationTest, RefusesANetworkTooSlowForTheModel) {
  const ModelSpec model = Layers(1, 500'000'000, 1, 1);
  Job job = FreeLanesJob(64, 1, Communication::ALL_PS);
  job.mutable_cluster()->mutable_network()->set_bandwidth("100Kbps");
  EXPECT_THAT(MessageOf<ConfigError>([&] { SimulateTraining(job, model, kSteady); }),
              HasSubstr("the network is too slow for this model"));
}

// Spare servers.

// 2 n (n - 1) M / ((n^2 + k n - 2 k) B), BytePS's formula, where lanes are enough for it
// (planner/placement.h), else what the bytes of the busiest machine take. All gradients are ready
// at once, and a few KV pairs of a connection pass before answers flow.
void ExpectSpareServersToHelp(int n) {
  constexpr int kLayers = 32;
  constexpr int64_t kFloats = 1 << 18;
  const double bytes = kLayers * 4.0 * kFloats;
  for (const int lanes : {1, 2, 4}) {
    double before = 0;
    for (int k = 0; k <= n; ++k) {
      SCOPED_TRACE(std::to_string(n) + " workers, " + std::to_string(k) + " spare servers, " +
                   std::to_string(lanes) + " lanes");
      Job job = FreeLanesJob(n, n + k, Communication::ALL_PS);
      job.mutable_communication()->set_kv_pair_bytes(1 << 15);
      job.mutable_communication()->set_lanes(lanes);
      job.mutable_communication()->set_window_bytes(1 << 16);
      const double formula = 2.0 * n * (n - 1) * bytes / (n * n + k * n - 2 * k) / kBytesPerSecond;
      const SimulatedTraining training =
          SimulateTraining(job, Layers(kLayers, kFloats, 0, 0), kSteady);
      const double busiest = training.bytes_sent / kBytesPerSecond;
      EXPECT_GE(busiest, 0.999 * formula);
      const bool enough = k == 0 || k >= n || lanes * (n - k) >= 2 * (n - 1);
      if (enough) {
        EXPECT_LE(busiest, 1.02 * formula);
      }
      EXPECT_GE(training.iteration, busiest);
      EXPECT_LE(training.iteration, 1.1 * busiest);
      if (k > 0) {
        EXPECT_LE(training.iteration, 1.01 * before);
      }
      before = training.iteration;
    }
  }
}

TEST(TrainingSimulationTest, SpareServersHelpAsMuchAsBytePsSays) { ExpectSpareServersToHelp(2); }
TEST(TrainingSimulationTest, SlowSpareServersHelpManyWorkers) { ExpectSpareServersToHelp(8); }

// Machines that vary.

// The mean of the largest of so many independent log-normal factors of mean 1: the integral of
// their quantile at u^(1/n), by the midpoint rule, with normal quantiles found by bisection.
double MeanOfLargest(int n, double spread) {
  const double variance = std::log1p(spread * spread);
  const auto quantile = [](double u) {
    double low = -40;
    double high = 40;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (std::erfc(-middle / std::numbers::sqrt2) / 2 < u ? low : high) = middle;
    }
    return low;
  };
  constexpr int kPoints = 20000;
  double mean = 0;
  for (int i = 0; i < kPoints; ++i) {
    const double z = quantile(std::pow((i + 0.5) / kPoints, 1.0 / n));
    mean += std::exp(std::sqrt(variance) * z - variance / 2) / kPoints;
  }
  return mean;
}

// On a network that costs nothing an iteration takes what the slowest worker's computing does,
// whatever the scheme.
TEST(DisturbanceTest, AnIterationIsAsLongAsTheSlowestWorkers) {
  const ModelSpec model = Layers(4, 1000, 1, 2);
  const SteadyIterations many{.warm_up = 3, .measured = 400};
  for (const int workers : {1, 2, 7, 24}) {
    for (const auto policy : {Communication::ALL_PS, Communication::ALL_RING}) {
      for (const double spread : {0.02, 0.2}) {
        SCOPED_TRACE(testing::Message() << workers << " workers, spread " << spread << ", policy "
                                        << Communication::Policy_Name(policy));
        Job job = FreeLanesJob(workers, 2, policy);
        job.mutable_cluster()->mutable_network()->set_bandwidth("1000Tbps");
        job.mutable_cluster()->mutable_network()->set_latency("0us");
        job.mutable_cluster()->mutable_disturbance()->set_iteration_spread(spread);
        const double ratio = SimulateTraining(job, model, many).iteration / 12e-3;
        // Four deviations of the mean of so many.
        EXPECT_NEAR(ratio, MeanOfLargest(workers, spread), 4 * spread / std::sqrt(many.measured));
      }
    }
  }
}

// The devices of a worker are as many that may be the slowest.
TEST(DisturbanceTest, DevicesCountAsWorkersDo) {
  const ModelSpec model = Layers(4, 1000, 1, 2);
  const SteadyIterations many{.warm_up = 3, .measured = 400};
  Job job = FreeLanesJob(4, 2, Communication::ALL_PS);
  Cluster& cluster = *job.mutable_cluster();
  cluster.mutable_network()->set_bandwidth("1000Tbps");
  cluster.mutable_network()->set_latency("0us");
  cluster.set_device_bandwidth("1000Tbps");
  cluster.set_devices_per_worker(8);
  cluster.mutable_disturbance()->set_iteration_spread(0.1);
  EXPECT_NEAR(SimulateTraining(job, model, many).iteration / 12e-3, MeanOfLargest(32, 0.1),
              4 * 0.1 / std::sqrt(many.measured));
}

// However few iterations there are, one worker alone takes what is planned.
TEST(DisturbanceTest, NothingIsSlowerOrFasterAlone) {
  const ModelSpec model = Layers(4, 1000, 1, 2);
  Job job = FreeLanesJob(1, 1, Communication::ALL_RING);
  Disturbance& disturbance = *job.mutable_cluster()->mutable_disturbance();
  const double calm = Iteration(job, model);
  disturbance.set_iteration_spread(0.3);
  disturbance.set_layer_spread(0.3);
  disturbance.set_stall_interval_seconds(0.01);
  disturbance.set_stall_seconds(0.005);
  for (int seed = 0; seed < 20; ++seed) {
    disturbance.set_seed(seed);
    EXPECT_NEAR(Iteration(job, model) / calm, 1, 0.005) << seed;
  }
}

// What is added to each pass, a worker that is alone takes, too; not to passes that there are not.
TEST(DisturbanceTest, ALayersCostIsNotThatOfTheExchange) {
  ModelSpec model = Layers(4, 1000, 1, 2);
  model.mutable_layers(0)->set_backward_ms(0);
  Job job = FreeLanesJob(1, 1, Communication::ALL_RING);
  job.mutable_cluster()->mutable_disturbance()->set_layer_cost("1ms");
  const SimulatedTraining training = SimulateTraining(job, model, kSteady);
  EXPECT_NEAR(training.compute, 10e-3 + 7e-3, 1e-9);
  EXPECT_NEAR(training.iteration, training.compute, 1e-6);
}

// Where the network is what takes long, computing may vary.
TEST(DisturbanceTest, CostsLittleWhereTheNetworkLimits) {
  const ModelSpec model = Layers(4, 10'000'000, 1, 2);
  const SteadyIterations many{.warm_up = 3, .measured = 50};
  Job job = FreeLanesJob(4, 4, Communication::ALL_PS);
  const double calm = SimulateTraining(job, model, many).iteration;
  ASSERT_GT(calm, 10 * 12e-3);
  job.mutable_cluster()->mutable_disturbance()->set_iteration_spread(0.1);
  const double disturbed = SimulateTraining(job, model, many).iteration;
  EXPECT_GT(disturbed, calm);
  EXPECT_LT(disturbed / calm, 1.02);
}

// What is said of a training.

TEST(TrainingSimulationTest, CountsMeanBytesAndSchemes) {
  const ModelSpec model = Layers(3, 1000000, 1, 1);
  Job job = FreeLanesJob(2, 3, Communication::ALL_PS);
  job.mutable_cluster()->mutable_network()->set_colocated(false);
  const SimulatedTraining training = SimulateTraining(job, model, kSteady);
  // Each of two workers sends and receives all 12 MB, and somebody receives and sends it.
  EXPECT_EQ(training.mean_bytes, 2 * 2 * 2 * 12e6 / 5);
  EXPECT_EQ(training.bytes_sent, 12e6);
  EXPECT_EQ(training.schemes, "PS 3.0M");
  Plan plan = training.plan;
  plan.mutable_buckets(1)->set_scheme(SFB);
  plan.mutable_buckets(2)->mutable_chunks()->Clear();
  plan.mutable_buckets(2)->add_chunks()->set_size(145578);
  plan.mutable_buckets(2)->set_scheme(ADAM);
  EXPECT_EQ(SchemeSummary(plan), "PS 1.0M, SFB 1.0M, Adam 145.6K");
}

// Caffe's own parameter servers: VGG19-22K's last layer, 358 MB, is one KV pair.
TEST(TrainingSimulationTest, LargestLayerStaysWhole) {
  const ModelSpec model = Layers(2, 21841LL * 4097, 1, 1);
  Job job = FreeLanesJob(2, 2, Communication::ALL_PS);
  job.mutable_communication()->set_kv_pair_bytes(536870912);
  job.mutable_communication()->set_overlap(false);
  const SimulatedTraining training = SimulateTraining(job, model, kSteady);
  EXPECT_EQ(training.plan.buckets(0).chunks_size(), 1);
  EXPECT_EQ(training.bytes_sent, 2 * 4.0 * 21841 * 4097);
}

}  // namespace
}  // namespace poseidon
