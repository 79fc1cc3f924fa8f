#include "planner/cost/cluster_model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace poseidon {
namespace {

Job JobWith(int workers) {
  Job job;
  Cluster& cluster = *job.mutable_cluster();
  cluster.set_workers(workers);
  cluster.set_servers(workers);
  cluster.mutable_network()->set_bandwidth("10Gbps");
  cluster.mutable_network()->set_goodput_share(0.8);
  cluster.mutable_network()->set_latency("50us");
  return job;
}

void AddTier(int members, const std::string& bandwidth, const std::string& latency, Job& job) {
  Tier& tier = *job.mutable_cluster()->mutable_network()->add_tier();
  tier.set_members(members);
  tier.set_bandwidth(bandwidth);
  tier.set_latency(latency);
}

void AddDeviation(int worker, double compute_factor, const char* bandwidth, Job& job) {
  Deviation& deviation = *job.mutable_cluster()->add_deviation();
  deviation.set_worker(worker);
  deviation.set_compute_factor(compute_factor);
  if (bandwidth != nullptr) deviation.set_bandwidth(bandwidth);
}

TEST(DeviationsTest, EachIsOfItsMachineAlone) {
  Job job = JobWith(3);
  AddDeviation(1, 2, "1Gbps", job);
  AddDeviation(2, 0.5, nullptr, job);
  const ClusterModel cluster = ClusterOf(job);
  EXPECT_DOUBLE_EQ(cluster.GoodputOf(0), 1e9);
  EXPECT_DOUBLE_EQ(cluster.GoodputOf(1), 1e8);
  EXPECT_DOUBLE_EQ(cluster.GoodputOf(2), 1e9);
  EXPECT_DOUBLE_EQ(cluster.LeastGoodput(), 1e8);
  EXPECT_DOUBLE_EQ(cluster.ComputeFactorOf(0), 1);
  EXPECT_DOUBLE_EQ(cluster.ComputeFactorOf(1), 2);
  EXPECT_DOUBLE_EQ(cluster.ComputeFactorOf(2), 0.5);
  EXPECT_DOUBLE_EQ(cluster.SlowestComputeFactor(), 2);
}

// A machine that is better than the others leaves them as they are, unless there is no other.
TEST(DeviationsTest, TheUsualMachineCountsWhileThereIsOne) {
  Job job = JobWith(2);
  AddDeviation(0, 0.5, "20Gbps", job);
  EXPECT_DOUBLE_EQ(ClusterOf(job).LeastGoodput(), 1e9);
  EXPECT_DOUBLE_EQ(ClusterOf(job).SlowestComputeFactor(), 1);
  AddDeviation(1, 0.8, "40Gbps", job);
  EXPECT_DOUBLE_EQ(ClusterOf(job).LeastGoodput(), 2e9);
  EXPECT_DOUBLE_EQ(ClusterOf(job).SlowestComputeFactor(), 0.8);
  // With a machine of its own, whose link is the usual one.
  job.mutable_cluster()->set_servers(3);
  EXPECT_DOUBLE_EQ(ClusterOf(job).LeastGoodput(), 1e9);
}

// Speeds of 1, 1 and 0.5 do in 1 / 2.5 of the time what one would, 3 in 3 / 2.5.
TEST(DeviationsTest, ABalancedBatchIsComputedTogether) {
  Job job = JobWith(3);
  AddDeviation(2, 2, "1Gbps", job);
  job.mutable_training()->set_batch(Training::BALANCED);
  const ClusterModel cluster = ClusterOf(job);
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_DOUBLE_EQ(cluster.ComputeFactorOf(worker), 1.2);
  }
  EXPECT_DOUBLE_EQ(cluster.GoodputOf(2), 1e8);
}

// Beyond the tier everybody has 0.25 Gb/s, or what the own link has if that is less.
TEST(DeviationsTest, AShareOfAnUplinkIsNoWiderForASlowLink) {
  Job job = JobWith(8);
  AddDeviation(0, 1, "1Gbps", job);
  AddDeviation(1, 1, "100Mbps", job);
  AddDeviation(2, 1, "100Gbps", job);
  AddTier(4, "1Gbps", "0us", job);
  const std::vector<ClusterModel> clusters = FartherClusters(job);
  ASSERT_EQ(clusters.size(), 1U);
  for (const int machine : {0, 2, 3}) {
    EXPECT_DOUBLE_EQ(clusters[0].GoodputOf(machine), 0.8 * 0.25e9 / 8) << machine;
  }
  EXPECT_DOUBLE_EQ(clusters[0].GoodputOf(1), 0.8 * 0.1e9 / 8);
}

TEST(FartherClustersTest, OneSwitchIsItself) { EXPECT_TRUE(FartherClusters(JobWith(8)).empty()); }

// 10 machines behind 25 Gb/s have 2.5 each; two such groups behind 10 Gb/s 0.5 each.
TEST(FartherClustersTest, AMachineHasItsShareOfTheUplinks) {
  Job job = JobWith(40);
  AddTier(10, "25Gbps", "1us", job);
  AddTier(2, "10Gbps", "3ms", job);
  const std::vector<ClusterModel> clusters = FartherClusters(job);
  ASSERT_EQ(clusters.size(), 2U);
  EXPECT_DOUBLE_EQ(clusters[0].goodput, 0.8 * 2.5e9 / 8);
  EXPECT_DOUBLE_EQ(clusters[0].latency, 52e-6);
  EXPECT_DOUBLE_EQ(clusters[1].goodput, 0.8 * 0.5e9 / 8);
  EXPECT_DOUBLE_EQ(clusters[1].latency, 6052e-6);
  EXPECT_EQ(clusters[1].workers, 40);
}

TEST(FartherClustersTest, UplinksThatCostNothingStandForNothing) {
  Job job = JobWith(16);
  AddTier(4, "40Gbps", "0us", job);
  EXPECT_TRUE(FartherClusters(job).empty());
  // Its latency counts, and its bandwidth takes nothing.
  AddTier(2, "400Gbps", "7us", job);
  const std::vector<ClusterModel> clusters = FartherClusters(job);
  ASSERT_EQ(clusters.size(), 1U);
  EXPECT_DOUBLE_EQ(clusters[0].goodput, ClusterOf(job).goodput);
  EXPECT_DOUBLE_EQ(clusters[0].latency, 64e-6);
}

TEST(FartherClustersTest, NobodyGoesBeyondAGroupThatHasAll) {
  Job job = JobWith(16);
  AddTier(16, "1Gbps", "1ms", job);
  EXPECT_TRUE(FartherClusters(job).empty());
}

}  // namespace
}  // namespace poseidon
