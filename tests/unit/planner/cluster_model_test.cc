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
