// What predictions and simulations take for updates that workers' devices make, against what can be
// worked out by hand.
#include <gtest/gtest.h>

#include "planner/cost/bucket_costs.h"
#include "simulation/plan_trial.h"
#include "simulation/training_simulation.h"
#include "tests/simulation/predictions/planned_training.h"

namespace poseidon {
namespace {

constexpr SteadyIterations kSteady{.warm_up = 3, .measured = 3};
constexpr int64_t kOutputs = 1000;
constexpr int64_t kInputs = 2000;
constexpr int64_t kRows = 32;
constexpr double kBytes = 4.0 * kOutputs * kInputs;
constexpr double kFactors = 4.0 * kRows * (kOutputs + kInputs);  // of a worker
constexpr int kDevices = 4;
constexpr double kLink = 2.5e9;  // 20 Gb/s
constexpr double kCopy = 5e8;    // 4 Gb/s
constexpr double kHostUpdates = 1e9;
constexpr double kDeviceUpdates = 2e9;
constexpr double kFlops = 1e11;
constexpr double kComputing = 3e-3;

ModelSpec InnerProduct() {
  ModelSpec model;
  model.set_batch(kRows);
  LayerSpec& layer = *model.add_layers();
  layer.set_name("ip");
  layer.add_blobs()->add_shape(kOutputs * kInputs);
  layer.set_forward_ms(1);
  layer.set_backward_ms(2);
  InnerProductSpec& product = *layer.mutable_inner_product();
  product.set_outputs(kOutputs);
  product.set_inputs(kInputs);
  product.set_rows(kRows);
  return model;
}

// Over a network that takes hardly any time; sums take none.
Job JobOf(int workers, Communication::Policy policy, Training::Device device) {
  Job job = PlannedJob(workers, 1, "100Tbps", "0us", true);
  Cluster& cluster = *job.mutable_cluster();
  cluster.mutable_network()->set_message_cost("0us");
  cluster.set_devices_per_worker(kDevices);
  cluster.set_device_bandwidth("20Gbps");
  cluster.set_copy_bandwidth("4Gbps");
  cluster.set_reduction_rate(1e15);
  cluster.set_update_rate(kHostUpdates);
  cluster.set_device_update_rate(kDeviceUpdates);
  cluster.set_flops(kFlops);
  job.mutable_communication()->set_policy(policy);
  job.mutable_communication()->set_kv_pair_bytes(8 * kOutputs * kInputs);
  job.mutable_training()->set_device(device);
  return job;
}

// Besides computing.
void ExpectExchange(const Job& job, double seconds) {
  const SimulatedTraining training = SimulateTraining(job, InnerProduct(), kSteady);
  EXPECT_NEAR(training.iteration - kComputing, seconds, 0.01 * seconds);
  EXPECT_NEAR(training.plan.iteration_ms() / 1000, training.iteration, 0.01 * training.iteration);
}

// A gradient's or value's way between the devices and their host.
constexpr double kShares = (kDevices - 1.0) / kDevices * kBytes / kLink;
constexpr double kWay = kShares + kBytes / kDevices / kCopy;
constexpr double kFactorsDown = kFactors / kDevices / kCopy;
constexpr double kFactorsUp =
    2 * kFactors / kDevices / kCopy + (kDevices - 1.0) / kDevices * 2 * kFactors / kLink;
constexpr double kOperations = 2 * 2 * kRows * (kBytes / 4);
constexpr double kRebuild = kOperations / kFlops;
constexpr double kHostRebuild = kOperations / 3e10;  // a core's rate
// Each device updates its share of what was reduced; and all of what it rebuilds.
constexpr double kShareUpdate = kBytes / kDevices / kDeviceUpdates;

TEST(DeviceUpdateTest, WhatWorkersUpdateIsTheirDevices) {
  ExpectExchange(JobOf(2, Communication::ALL_RING, Training::CUDA), 2 * kWay + kShareUpdate);
  ExpectExchange(JobOf(2, Communication::ALL_SFB, Training::CUDA),
                 kFactorsDown + kFactorsUp + kRebuild + kBytes / kDeviceUpdates);
  Job job = JobOf(2, Communication::ALL_PS, Training::CUDA);
  job.mutable_communication()->set_update_at(Communication::WORKERS);
  ExpectExchange(job, 2 * kWay + kShareUpdate);
}

TEST(DeviceUpdateTest, WhatServersUpdateIsTheirs) {
  ExpectExchange(JobOf(2, Communication::ALL_PS, Training::CUDA), 2 * kWay + kBytes / kHostUpdates);
}

TEST(DeviceUpdateTest, AWorkerThatIsAloneCopiesNothing) {
  ExpectExchange(JobOf(1, Communication::ALL_RING, Training::CUDA), 2 * kShares + kShareUpdate);
}

// What it may go back to is the host's, and values go to the devices.
TEST(DeviceUpdateTest, AJobThatRecoversUpdatesOnHosts) {
  for (const auto policy : {Communication::ALL_RING, Communication::ALL_SFB}) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    Job job = JobOf(2, policy, Training::CUDA);
    job.mutable_recovery()->set_mode(Recovery::REPLACE);
    const bool factors = policy == Communication::ALL_SFB;
    // However quick devices are.
    for (const double flops : {kFlops, 100 * kFlops}) {
      job.mutable_cluster()->set_flops(flops);
      ExpectExchange(job,
                     (factors ? kFactorsDown + kHostRebuild : kWay) + kWay + kBytes / kHostUpdates);
    }
  }
}

TEST(DeviceUpdateTest, AJobThatDoesNotRecoverUpdatesOnDevices) {
  Job job = JobOf(2, Communication::ALL_RING, Training::CUDA);
  job.mutable_recovery()->set_mode(Recovery::NONE);
  ExpectExchange(job, 2 * kWay + kShareUpdate);
}

// What is tried is the job as it trains, though nobody is lost in a trial.
TEST(DeviceUpdateTest, AJobThatRecoversIsTriedAsItTrains) {
  Job job = JobOf(2, Communication::TIME, Training::CUDA);
  job.mutable_communication()->set_lanes(1);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  SimulationControl control;
  control.planner = PlanByTrial;
  const SimulatedTraining training = SimulateTraining(job, InnerProduct(), kSteady, {}, control);
  EXPECT_NEAR(training.plan.simulated_ms() / 1000, training.iteration, 0.02 * training.iteration);
}

TEST(DeviceUpdateTest, AnUpdateThatNeedsTheWholeGradientIsTheHosts) {
  ModelSpec model = InnerProduct();
  BucketPlan bucket;
  bucket.set_scheme(RING);
  bucket.set_update_at_workers(true);
  const ClusterModel cluster = ClusterOf(JobOf(2, Communication::ALL_RING, Training::CUDA));
  EXPECT_TRUE(DevicesUpdate(bucket, model, cluster));
  model.mutable_update_rule()->set_deferred(true);
  EXPECT_FALSE(DevicesUpdate(bucket, model, cluster));
}

// Which place is quicker decides between schemes: with slow hosts TIME has workers' devices update.
TEST(DeviceUpdateTest, TimeChoosesThePlaceThatIsQuicker) {
  const auto scheme = [](double host, double device) {
    Job job = JobOf(2, Communication::TIME, Training::CUDA);
    job.mutable_cluster()->set_update_rate(host);
    job.mutable_cluster()->set_device_update_rate(device);
    ModelSpec model = InnerProduct();
    model.mutable_layers(0)->clear_inner_product();
    return SimulateTraining(job, model, kSteady).plan.buckets(0).scheme();
  };
  EXPECT_NE(scheme(1e8, 1e12), PS);
  EXPECT_EQ(scheme(1e12, 1e8), PS);
}

}  // namespace
}  // namespace poseidon
