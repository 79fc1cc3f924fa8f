#include "planner/backups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/job_plan.h"

namespace poseidon {
namespace {

using Hosts = std::vector<std::string>;

// Buckets under PS, of chunks at these servers, of 100, 99, ... floats.
Plan PlanOf(int servers, const std::vector<std::vector<int>>& buckets) {
  Plan plan;
  plan.set_servers(servers);
  int64_t size = 100;
  for (const std::vector<int>& owners : buckets) {
    BucketPlan& bucket = *plan.add_buckets();
    bucket.set_scheme(PS);
    for (const int owner : owners) {
      Chunk& chunk = *bucket.add_chunks();
      chunk.set_server(owner);
      chunk.set_size(size--);
    }
  }
  return plan;
}

std::vector<int> BackupsOf(const Plan& plan) {
  std::vector<int> backups;
  for (const BucketPlan& bucket : plan.buckets()) {
    for (const Chunk& chunk : bucket.chunks()) {
      backups.push_back(chunk.has_backup() ? chunk.backup() : -1);
    }
  }
  return backups;
}

TEST(BackupsTest, AreSpreadOverTheOtherServers) {
  Plan plan = PlanOf(3, {{0, 0, 1, 1}, {2, 2}});
  PlaceBackups({}, plan);
  EXPECT_THAT(BackupsOf(plan), testing::ElementsAre(1, 2, 2, 0, 0, 1));
  EXPECT_FALSE(BackupsShareHosts({}, plan));
}

TEST(BackupsTest, AreOnAnotherHostIfThereIsOne) {
  Plan plan = PlanOf(3, {{0, 0, 1, 1, 2, 2}});
  const Hosts hosts = {"a", "a", "b"};
  PlaceBackups(hosts, plan);
  EXPECT_THAT(BackupsOf(plan), testing::ElementsAre(2, 2, 2, 2, 0, 1));
  EXPECT_FALSE(BackupsShareHosts(hosts, plan));
  PlaceBackups({"a", "a", "a"}, plan);
  EXPECT_THAT(BackupsOf(plan), testing::ElementsAre(1, 2, 2, 0, 0, 1));
  EXPECT_TRUE(BackupsShareHosts({"a", "a", "a"}, plan));
}

TEST(BackupsTest, AreForWhatServersUpdate) {
  Plan plan = PlanOf(2, {{0}, {1}, {0}});
  plan.mutable_buckets(0)->set_update_at_workers(true);
  plan.mutable_buckets(1)->set_scheme(SFB);
  plan.mutable_buckets(1)->set_update_at_workers(true);
  PlaceBackups({}, plan);
  EXPECT_THAT(BackupsOf(plan), testing::ElementsAre(-1, -1, 1));
}

TEST(BackupsTest, OfALayerUnderAdamAreOneServer) {
  Plan plan = PlanOf(4, {{3, 3, 3}});
  plan.mutable_buckets(0)->set_scheme(ADAM);
  PlaceBackups({}, plan);
  EXPECT_THAT(BackupsOf(plan), testing::ElementsAre(0, 0, 0));
}

// Four servers, each with a quarter of the layer, which it sends to another one.
TEST(BackupsTest, CostTheSumOfGradientsOnce) {
  constexpr int64_t kQuarter = 1024;
  ModelSpec model;
  LayerSpec& layer = *model.add_layers();
  layer.set_name("layer");
  layer.add_blobs()->add_shape(4 * kQuarter);
  layer.set_forward_ms(10);
  layer.set_backward_ms(20);
  Job job;
  job.mutable_cluster()->set_workers(4);
  job.mutable_cluster()->set_servers(4);
  job.mutable_cluster()->mutable_network()->set_bandwidth("8Gbps");
  job.mutable_communication()->set_policy(Communication::ALL_PS);
  job.mutable_communication()->set_update_at(Communication::SERVERS);
  job.mutable_communication()->set_kv_pair_bytes(4 * kQuarter);
  const auto predict = [&](Recovery::Mode mode) {
    job.mutable_recovery()->set_mode(mode);
    const Plan plan = PlanJob(InformationBook(model, job.cluster()), job);
    return plan.buckets(0).prediction();
  };
  const BucketPrediction without = predict(Recovery::NONE);
  const BucketPrediction with = predict(Recovery::REPLACE);
  EXPECT_EQ(with.bytes_sent(), without.bytes_sent() + 4 * kQuarter);
  EXPECT_EQ(with.bytes_received(), without.bytes_received() + 4 * kQuarter);
}

TEST(BackupsTest, NeedASecondServer) {
  Plan plan = PlanOf(1, {{0}});
  PlaceBackups({}, plan);
  EXPECT_THAT(BackupsOf(plan), testing::ElementsAre(-1));
}

}  // namespace
}  // namespace poseidon
