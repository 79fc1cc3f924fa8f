// Predicted iterations against simulated ones: the actors themselves, with phantom payloads.
#include "planner/predictor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/model_size.h"
#include "tests/simulation/predictions/planned_training.h"

namespace poseidon {
namespace {

void ExpectWithinATenth(int workers, const char* bandwidth, const char* latency) {
  for (const PlannedNet& net : PlannedNets()) {
    for (const Communication::Policy policy : kComparedPolicies) {
      SCOPED_TRACE(std::string(net.name) + ", " + std::to_string(workers) + " workers, " +
                   bandwidth + ", " + latency + ", " + Communication::Policy_Name(policy));
      Job job = PlannedJob(workers, workers, bandwidth, latency, true);
      job.mutable_communication()->set_policy(policy);
      const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
      EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
    }
  }
}

TEST(PredictorSimulation, IsWithinATenth) {
  ExpectWithinATenth(2, "10Gbps", "10us");
  ExpectWithinATenth(2, "1Gbps", "1ms");
}

TEST(PredictorSimulation, SlowIsWithinATenthOnOtherNetworks) {
  ExpectWithinATenth(2, "1Gbps", "10us");
  ExpectWithinATenth(2, "10Gbps", "1ms");
  for (const char* bandwidth : {"1Gbps", "10Gbps"}) {
    for (const char* latency : {"10us", "1ms"}) ExpectWithinATenth(8, bandwidth, latency);
  }
}

TEST(PredictorSimulation, IsWithinATenthWithManyWorkers) {
  const PlannedNet net = PlannedNets()[1];
  for (const Communication::Policy policy :
       {Communication::BYTES, Communication::ALL_SFB, Communication::ALL_RING}) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    Job job = PlannedJob(24, 24, "10Gbps", "1ms", true);
    job.mutable_communication()->set_policy(policy);
    const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
    EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
  }
}

// A worker waits for the answer to its own gradient, however stale that is.
TEST(PredictorSimulation, IsWithinATenthWithStaleness) {
  const std::vector<PlannedNet> nets = PlannedNets();
  for (const int net : {0, 1}) {
    for (const char* bandwidth : {"1Gbps", "10Gbps"}) {
      for (const int staleness : {-1, 1, 3}) {
        SCOPED_TRACE(std::string(nets[net].name) + ", " + bandwidth + ", staleness " +
                     std::to_string(staleness));
        Job job = PlannedJob(4, 4, bandwidth, "100us", true);
        job.mutable_communication()->set_policy(Communication::ALL_PS);
        job.mutable_communication()->set_staleness(staleness);
        const PlannedOutcome outcome = TrainAsPlanned(job, nets[net].model);
        EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
      }
    }
  }
}

// Five times the default cost of a message, which keeps lanes busy for about as long as links.
TEST(PredictorSimulation, IsWithinATenthWhereMessagesCost) {
  const PlannedNet net = PlannedNets()[1];
  for (const Communication::Policy policy : kComparedPolicies) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    Job job = PlannedJob(4, 4, "10Gbps", "100us", true);
    job.mutable_cluster()->mutable_network()->set_message_cost("100us");
    job.mutable_communication()->set_kv_pair_bytes(131072);
    job.mutable_communication()->set_policy(policy);
    const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
    EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
  }
}

// Rebuilding and updating fully connected layers takes a lane longer than an iteration's computing;
// factors of other layers must not wait for it. VGG19 six times as fast as its 4 Tflop/s.
TEST(PredictorSimulation, FactorsDoNotWaitForRebuilds) {
  PlannedNet net = PlannedNets()[0];
  for (LayerSpec& layer : *net.model.mutable_layers()) {
    layer.set_forward_ms(layer.forward_ms() / 6);
    layer.set_backward_ms(layer.backward_ms() / 6);
  }
  for (const char* bandwidth : {"10Gbps", "25Gbps"}) {
    SCOPED_TRACE(bandwidth);
    Job job = PlannedJob(8, 8, bandwidth, "50us", true);
    job.mutable_cluster()->set_flops(4e12);
    job.mutable_cluster()->set_update_rate(2e9);
    job.mutable_cluster()->set_reduction_rate(5e9);
    job.mutable_communication()->set_policy(Communication::BYTES);
    const PlannedOutcome bytes = TrainAsPlanned(job, net.model);
    EXPECT_NEAR(bytes.predicted, bytes.simulated, 0.05 * bytes.simulated);
    job.mutable_communication()->set_policy(Communication::TIME);
    const PlannedOutcome time = TrainAsPlanned(job, net.model);
    EXPECT_NEAR(time.predicted, time.simulated, 0.05 * time.simulated);
    EXPECT_LE(time.simulated, 1.01 * bytes.simulated);
  }
}

// As fast as one core, on a network that is faster.
TEST(PredictorSimulation, IsWithinATenthWhereSumsAndUpdatesCost) {
  for (const PlannedNet& net : PlannedNets()) {
    for (const int workers : {2, 6}) {
      for (const Communication::Policy policy : kComparedPolicies) {
        SCOPED_TRACE(std::string(net.name) + ", " + std::to_string(workers) + " workers, " +
                     Communication::Policy_Name(policy));
        Job job = PlannedJob(workers, workers, "40Gbps", "50us", true);
        job.mutable_cluster()->clear_flops();
        job.mutable_cluster()->clear_reduction_rate();
        job.mutable_cluster()->clear_update_rate();
        job.mutable_communication()->set_policy(policy);
        const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
        EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
      }
    }
  }
}

// Nothing is sent, and yet its lane, or the server's, makes all updates.
TEST(PredictorSimulation, OneWorkersUpdatesCost) {
  for (const PlannedNet& net : PlannedNets()) {
    for (const Communication::Policy policy : kComparedPolicies) {
      SCOPED_TRACE(std::string(net.name) + ", " + Communication::Policy_Name(policy));
      Job job = PlannedJob(1, 1, "10Gbps", "50us", true);
      job.mutable_communication()->set_policy(policy);
      const PlannedOutcome without = TrainAsPlanned(job, net.model);
      // Three times as long as the net computes, with one lane.
      const double updates = 3 * without.simulated;
      double bytes = 0;
      for (const LayerSpec& layer : net.model.layers()) {
        bytes += static_cast<double>(FloatCount(layer) * kFloatBytes);
      }
      job.mutable_cluster()->set_update_rate(bytes / updates);
      const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
      // Under these two the server's lane makes some and the worker's the others.
      const bool two_lanes = policy == Communication::BYTES || policy == Communication::ALL_SFB;
      EXPECT_GE(outcome.simulated, (two_lanes ? 0.5 : 0.999) * updates);
      EXPECT_LE(outcome.simulated, 1.001 * (updates + without.simulated));
      EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.01 * outcome.simulated);
    }
  }
}

// Four GPUs a worker, joined and copied as by PCI Express 3.
TEST(PredictorSimulation, IsWithinATenthWithSeveralDevices) {
  for (const PlannedNet& net : PlannedNets()) {
    for (const Communication::Policy policy : kComparedPolicies) {
      SCOPED_TRACE(std::string(net.name) + ", " + Communication::Policy_Name(policy));
      Job job = PlannedJob(4, 4, "10Gbps", "50us", true);
      job.mutable_cluster()->set_devices_per_worker(4);
      job.mutable_cluster()->set_copy_bandwidth("96Gbps");
      job.mutable_communication()->set_policy(policy);
      const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
      EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
    }
  }
}

TEST(PredictorSimulation, IsWithinATenthWithServersOfTheirOwn) {
  const PlannedNet net = PlannedNets()[2];
  for (const Communication::Policy policy : kComparedPolicies) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    Job job = PlannedJob(6, 3, "10Gbps", "100us", false);
    job.mutable_communication()->set_policy(policy);
    const PlannedOutcome outcome = TrainAsPlanned(job, net.model);
    EXPECT_NEAR(outcome.predicted, outcome.simulated, 0.1 * outcome.simulated);
  }
}

// Neither than one scheme for all, nor than the paper's policy, nor than first come, first served.
void ExpectPolicyTimeIsNoSlower(int workers, const char* bandwidth) {
  for (const PlannedNet& net : PlannedNets()) {
    SCOPED_TRACE(std::string(net.name) + ", " + std::to_string(workers) + " workers, " + bandwidth);
    Job job = PlannedJob(workers, workers, bandwidth, "100us", true);
    job.mutable_communication()->set_policy(Communication::TIME);
    const PlannedOutcome time = TrainAsPlanned(job, net.model);
    EXPECT_NEAR(time.predicted, time.simulated, 0.1 * time.simulated);
    // A hundredth is how well two runs of one plan agree that start differently.
    const double most = 1.01;
    for (const Communication::Policy policy : kComparedPolicies) {
      job.mutable_communication()->set_policy(policy);
      EXPECT_LE(time.simulated, most * TrainAsPlanned(job, net.model).simulated)
          << Communication::Policy_Name(policy);
    }
    job.mutable_communication()->set_policy(Communication::TIME);
    job.mutable_communication()->set_by_priority(false);
    EXPECT_LE(time.simulated, most * TrainAsPlanned(job, net.model).simulated) << "FIFO";
  }
}

TEST(PredictorSimulation, PolicyTimeIsNoSlowerThanOthers) {
  ExpectPolicyTimeIsNoSlower(2, "1Gbps");
}

TEST(PredictorSimulation, SlowPolicyTimeIsNoSlowerThanOthersOnOtherNetworks) {
  ExpectPolicyTimeIsNoSlower(2, "40Gbps");
  ExpectPolicyTimeIsNoSlower(8, "1Gbps");
  ExpectPolicyTimeIsNoSlower(8, "40Gbps");
}

}  // namespace
}  // namespace poseidon
