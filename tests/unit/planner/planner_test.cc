#include "planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/message_limit.h"
#include "planner/job_plan.h"
#include "planner/placement.h"
#include "planner/plan_candidates.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::EndsWith;

Communication Settings(int64_t kv_pair_bytes, int lanes, Communication::Policy policy) {
  Communication communication;
  communication.set_kv_pair_bytes(kv_pair_bytes);
  communication.set_lanes(lanes);
  communication.set_policy(policy);
  return communication;
}

void AddLayer(int64_t floats, ModelSpec& model) {
  LayerSpec* layer = model.add_layers();
  layer->set_name("layer" + std::to_string(model.layers_size()));
  layer->add_blobs()->add_shape(floats);
}

void AddInnerProduct(int64_t outputs, int64_t inputs, int64_t rows, ModelSpec& model) {
  AddLayer(outputs * inputs, model);
  InnerProductSpec* product =
      model.mutable_layers(model.layers_size() - 1)->mutable_inner_product();
  product->set_outputs(outputs);
  product->set_inputs(inputs);
  product->set_rows(rows);
}

TEST(PlannerTest, CutsLayersWithoutGapsIntoPiecesOfNearlyOneSize) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    ModelSpec model;
    for (uint64_t layers = 1 + random() % 8; layers > 0; --layers) {
      if (random() % 2 == 0) {
        AddLayer(1 + static_cast<int64_t>(random() % 5000), model);
      } else {
        AddInnerProduct(1 + static_cast<int64_t>(random() % 70),
                        1 + static_cast<int64_t>(random() % 70), 4, model);
      }
    }
    const int workers = 1 + static_cast<int>(random() % 9);
    const int servers = 1 + static_cast<int>(random() % 9);
    const int lanes = 1 + static_cast<int>(random() % 4);
    const int64_t piece = 1 + static_cast<int64_t>(random() % 900);
    const InformationBook book(model, workers, servers);
    const Plan plan = MakePlan(book, Settings(4 * piece, lanes, Communication::BYTES));
    ASSERT_EQ(plan.buckets_size(), model.layers_size());
    EXPECT_EQ(plan.workers(), workers);
    EXPECT_EQ(plan.servers(), servers);
    EXPECT_EQ(plan.lanes(), lanes);
    for (int l = 0; l < plan.buckets_size(); ++l) {
      const BucketPlan& layer = plan.buckets(l);
      EXPECT_EQ(layer.name(), model.layers(l).name());
      EXPECT_GE(layer.lane(), 0);
      EXPECT_LT(layer.lane(), lanes);
      int64_t end = 0;
      int64_t smallest = piece;
      int64_t largest = 0;
      for (const Chunk& chunk : layer.chunks()) {
        EXPECT_EQ(chunk.offset(), end);
        end += chunk.size();
        smallest = std::min(smallest, chunk.size());
        largest = std::max(largest, chunk.size());
        if (layer.scheme() == SFB) {
          EXPECT_EQ(chunk.server(), -1);
          EXPECT_EQ(chunk.lane(), layer.lane());
        } else {
          EXPECT_GE(chunk.server(), 0);
          EXPECT_LT(chunk.server(), servers);
          EXPECT_GE(chunk.lane(), 0);
          EXPECT_LT(chunk.lane(), lanes);
        }
      }
      EXPECT_EQ(end, book.Query(l).parameters);
      EXPECT_GE(smallest, 1);
      EXPECT_LE(largest, piece);
      EXPECT_LE(largest - smallest, 1);
      EXPECT_EQ(layer.chunks_size(), (end + piece - 1) / piece);
    }
  }
}

// Graham's bound for any greedy placement: the fullest server got its last piece when it was the
// emptiest, so was no fuller than the mean of the rest.
TEST(PlannerTest, BalancesServersAsWellAsPromised) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300; ++i) {
    ModelSpec model;
    for (uint64_t layers = 1 + random() % 40; layers > 0; --layers) {
      AddLayer(1 + static_cast<int64_t>(random() % 10000), model);
    }
    const int servers = 1 + static_cast<int>(random() % 8);
    const Plan plan =
        MakePlan(InformationBook(model, 3, servers), Settings(4 * 3000, 1, Communication::ALL_PS));
    int64_t total = 0;
    int64_t largest = 0;
    for (const BucketPlan& layer : plan.buckets()) {
      for (const Chunk& chunk : layer.chunks()) {
        total += chunk.size();
        largest = std::max(largest, chunk.size());
      }
    }
    const std::vector<int64_t> loads = ServerLoads(plan);
    ASSERT_EQ(static_cast<int>(loads.size()), servers);
    const double most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
    const double mean = static_cast<double>(total) / servers;
    EXPECT_LE(most, mean + (1 - 1.0 / servers) * static_cast<double>(largest) + 1e-6);
    EXPECT_DOUBLE_EQ(LoadImbalance(plan), most * servers / static_cast<double>(total));
  }
}

TEST(PlannerTest, ABigLayerIsSpreadEvenly) {
  ModelSpec model;
  AddLayer(100000000, model);  // VGG's fc6, about
  AddLayer(64, model);
  const Plan plan =
      MakePlan(InformationBook(model, 8, 8), Settings(2097152, 2, Communication::ALL_PS));
  EXPECT_LT(LoadImbalance(plan), 1.03);
  std::vector<int64_t> lanes(16);
  for (const Chunk& chunk : plan.buckets(0).chunks()) {
    lanes[chunk.server() * 2 + chunk.lane()] += chunk.size();
  }
  const auto [least, most] = std::minmax_element(lanes.begin(), lanes.end());
  EXPECT_LE(*most - *least, 524288);
}

// Three numbers a parameter: Adam's two, and the mean gradient that a deferred rule waits for.
TEST(PlannerTest, AChunksOptimizerStateFitsIntoAMessage) {
  constexpr int64_t kFloats = 102'764'544;  // of VGG-19's fc6
  ModelSpec model;
  AddLayer(kFloats, model);
  model.mutable_update_rule()->set_type("Adam");
  const auto chunks = [&](Communication::Policy policy) {
    const Communication settings = Settings(int64_t{1} << 29, 1, policy);
    const Plan plan = MakePlan(InformationBook(model, 2, 1), settings);
    std::vector<int64_t> sizes;
    for (const Chunk& chunk : plan.buckets(0).chunks()) sizes.push_back(chunk.size());
    return sizes;
  };
  EXPECT_THAT(chunks(Communication::ALL_PS), ElementsAre(kFloats));
  model.mutable_update_rule()->set_deferred(true);
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_RING}) {
    EXPECT_THAT(chunks(policy), ElementsAre(kFloats / 2, kFloats / 2));
    EXPECT_LE(kFloats / 2 * 3 * 4, kMostBodyBytes);
  }
}

// One of a float each was 25 GB of them, and a message that nobody takes.
TEST(PlannerTest, MoreKvPairsThanAPlanMayHaveAreRefusedWithASizeThatIsEnough) {
  const auto refusal = [](int64_t floats, int layers, int64_t kv_pair_bytes) {
    ModelSpec model;
    for (int i = 0; i < layers; ++i) AddLayer(floats, model);
    Job job;
    *job.mutable_communication() = Settings(kv_pair_bytes, 1, Communication::ALL_PS);
    return MessageOf<ConfigError>([&] { PlanJob(InformationBook(model, 2, 1), job); });
  };
  EXPECT_EQ(refusal(kMostKvPairs + 1, 1, 4),
            "communication.kv_pair_bytes is 4, which cuts the model into 4194305 KV pairs; a plan "
            "has at most 4194304, so give it 8 or more");
  constexpr int64_t kFloats = 102'764'544;  // of VGG-19's fc6
  EXPECT_THAT(refusal(kFloats, 1, 4), EndsWith("into 102764544 KV pairs; a plan has at most "
                                               "4194304, so give it 100 or more"));
  EXPECT_THAT(refusal(3 * kMostKvPairs / 2 + 1, 2, 8), EndsWith("so give it 16 or more"));
  EXPECT_EQ(refusal(1000, 10, 4), "");
}

TEST(PlannerTest, APlanOfTheMostKvPairsFitsIntoAMessageSeveralTimes) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  Plan plan;
  Chunk& chunk = *plan.add_buckets()->add_chunks();
  chunk.set_offset(int64_t{1} << 40);
  chunk.set_size(kMost);
  chunk.set_server(-1);
  chunk.set_lane(63);
  chunk.set_backup(kMost);
  chunk.set_recipient(Chunk::BACKUP);
  EXPECT_LT(static_cast<int64_t>(plan.ByteSizeLong()) * kMostKvPairs, kMostBodyBytes / 4);
}

TEST(PlannerTest, LargestFirstOntoTheLeastLoadedLowestIndexOnATie) {
  ModelSpec model;
  for (const int64_t floats : {3, 5, 4, 3, 1}) AddLayer(floats, model);
  const Plan plan = MakePlan(InformationBook(model, 1, 2), Settings(400, 1, Communication::ALL_PS));
  // 5 -> 0, 4 -> 1, 3 -> 1, 3 -> 0, 1 -> 1
  std::vector<int> servers;
  for (const BucketPlan& layer : plan.buckets()) servers.push_back(layer.chunks(0).server());
  EXPECT_THAT(servers, ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(ServerLoads(plan), ElementsAre(8, 8));
  EXPECT_EQ(LoadImbalance(plan), 1);
}

// How a server is reached, in the exchange below: bytes of each worker's, and over how many lanes.
struct Share {
  double bytes = 0;
  int lanes = 0;
};

// Seconds of an exchange of which all gradients are ready at once, at one byte a second: n workers
// send to and hear from `own` beside each of them, and k spare servers, over connections that get
// equal shares of a worker's link, a spare one at most an n-th of the server's.
double SecondsOfExchange(int n, int k, const Share& own, const Share& spare) {
  const int pairs = 2 * (n - 1);
  double to_own = own.bytes, to_spare = spare.bytes, seconds = 0;
  while (to_own > 1e-9 || to_spare > 1e-9) {
    const int own_connections = to_own > 1e-9 ? pairs * own.lanes : 0;
    const int spare_connections = to_spare > 1e-9 ? k * spare.lanes : 0;
    const double equal = 1.0 / (own_connections + spare_connections);
    const double spare_rate = std::min(equal * spare.lanes, 1.0 / n);
    const double own_rate = spare_connections > 0 ? (1 - k * spare_rate) / pairs : 1.0 / pairs;
    double step = own_connections > 0 ? to_own / own_rate : 1e300;
    if (spare_connections > 0) step = std::min(step, to_spare / spare_rate);
    if (own_connections > 0) to_own -= step * own_rate;
    if (spare_connections > 0) to_spare -= step * spare_rate;
    seconds += step;
  }
  return seconds;
}

// None that uses the same lanes of all servers beside workers, whatever it gives to which servers.
double ShortestExchange(int n, int k, int lanes) {
  constexpr int kSteps = 400;
  double shortest = 1e300;
  for (int own_lanes = 1; own_lanes <= lanes; ++own_lanes) {
    for (int step = 0; step <= kSteps; ++step) {
      const double spare = step / (1.0 * kSteps * k);
      const double own = (1 - spare * k) / n;
      shortest = std::min(shortest, SecondsOfExchange(n, k, {own, own_lanes}, {spare, lanes}));
    }
  }
  return shortest;
}

TEST(PlannerTest, SpareServersGetWhatTheirConnectionsCanCarry) {
  constexpr int64_t kFloats = 1 << 20;
  ModelSpec model;
  AddLayer(kFloats, model);
  for (const int n : {2, 3, 4, 8, 16}) {
    for (const int lanes : {1, 2, 3, 4, 8}) {
      double before = 2.0 * (n - 1) / n;
      for (int k = 1; k <= n; ++k) {
        SCOPED_TRACE(std::to_string(n) + " workers, " + std::to_string(k) + " spare servers, " +
                     std::to_string(lanes) + " lanes");
        Cluster cluster;
        cluster.set_workers(n);
        cluster.set_servers(n + k);
        cluster.mutable_network()->set_colocated(true);
        const Plan plan =
            MakePlan(InformationBook(model, cluster), Settings(256, lanes, Communication::ALL_PS));
        std::vector<std::vector<int64_t>> loads(n + k, std::vector<int64_t>(lanes));
        for (const Chunk& chunk : plan.buckets(0).chunks()) {
          loads[chunk.server()][chunk.lane()] += chunk.size();
        }
        // The slowest of each kind.
        Share own, spare;
        std::vector<int64_t> of_lanes(lanes);
        for (int server = 0; server < n + k; ++server) {
          const std::vector<int64_t>& load = loads[server];
          Share& share = server < n ? own : spare;
          for (int lane = 0; lane < lanes; ++lane) of_lanes[lane] += load[lane];
          const auto sum = static_cast<double>(std::accumulate(load.begin(), load.end(), 0LL));
          share.bytes = std::max(share.bytes, sum / kFloats);
          share.lanes = static_cast<int>(lanes - std::count(load.begin(), load.end(), 0));
        }
        EXPECT_EQ(spare.lanes, lanes);
        const double seconds = SecondsOfExchange(n, k, own, spare);
        EXPECT_LE(seconds, 1.01 * ShortestExchange(n, k, lanes));
        EXPECT_LE(seconds, 1.01 * before);
        before = seconds;
        // Workers use all of theirs.
        EXPECT_GT(*std::min_element(of_lanes.begin(), of_lanes.end()), 0);
      }
    }
  }
}

TEST(PlannerTest, FactorsUseNoServerAndSpreadOverLanes) {
  ModelSpec model;
  for (int i = 0; i < 4; ++i) AddInnerProduct(50, 50, 2, model);
  const Plan plan =
      MakePlan(InformationBook(model, 4, 3), Settings(400, 2, Communication::ALL_SFB));
  std::vector<int> lanes;
  for (const BucketPlan& layer : plan.buckets()) {
    EXPECT_EQ(layer.scheme(), SFB);
    lanes.push_back(layer.lane());
  }
  EXPECT_THAT(lanes, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(ServerLoads(plan), ElementsAre(0, 0, 0));
  EXPECT_EQ(LoadImbalance(plan), 1);
}

TEST(PlannerTest, TellsTheFloatsOfBothSchemes) {
  ModelSpec model;
  AddInnerProduct(4096, 4096, 32, model);
  AddLayer(1000, model);
  const Plan plan =
      MakePlan(InformationBook(model, 8, 8), Settings(2097152, 1, Communication::BYTES));
  EXPECT_EQ(plan.buckets(0).floats_ps(), 58720256);
  EXPECT_EQ(plan.buckets(0).floats_sfb(), 3670016);
  EXPECT_EQ(plan.buckets(0).scheme(), SFB);
  EXPECT_EQ(plan.buckets(1).floats_ps(), 3500);
  EXPECT_EQ(plan.buckets(1).floats_sfb(), 0);
  EXPECT_EQ(plan.buckets(1).scheme(), PS);
}

// What Adam's servers would send back is new values, which nobody packs; a server's sum anybody
// may.
TEST(PlannerTest, WhatServersMayNotUpdateIsPackedAndMergedAsUnderPs) {
  ModelSpec model;
  model.set_batch(4);
  AddInnerProduct(60, 50, 4, model);
  AddInnerProduct(40, 60, 4, model);
  Communication communication = Settings(65536, 1, Communication::ALL_ADAM);
  communication.set_codec(BF16);
  communication.set_bucket_bytes(1 << 20);
  const auto buckets = [&] {
    return MakePlan(InformationBook(model, 2, 2), communication).buckets();
  };
  ASSERT_EQ(buckets().size(), 2);
  EXPECT_EQ(buckets()[0].scheme(), ADAM);
  EXPECT_EQ(buckets()[0].codec(), FP32);
  model.mutable_update_rule()->set_deferred(true);
  ASSERT_EQ(buckets().size(), 1);
  EXPECT_EQ(buckets()[0].scheme(), PS);
  EXPECT_EQ(buckets()[0].codec(), BF16);
  EXPECT_TRUE(buckets()[0].update_at_workers());
}

// Which worker has a gradient of what is counted by the mean of flags, which no codec may round.
TEST(PlannerTest, FlagsTravelAsTheyAre) {
  ModelSpec model;
  model.set_batch(1);
  for (const char* name : {"flags", "a", "b"}) {
    LayerSpec& layer = *model.add_layers();
    layer.set_name(name);
    layer.set_type(std::string(name) == "flags" ? kFlagsLayer : "Dense");
    layer.add_blobs()->add_shape(1000);
  }
  const InformationBook book(model, 2, 2);
  Communication communication;
  communication.set_policy(Communication::ALL_PS);
  for (const WireCodec codec : {INT8, ONE_BIT, TOP_K, BF16}) {
    communication.set_codec(codec);
    for (const int64_t bucket_bytes : {0, 1 << 20}) {
      communication.set_bucket_bytes(bucket_bytes);
      const std::vector<BucketChoice> buckets = ChooseBuckets(book, communication);
      EXPECT_EQ(buckets[0].codec, FP32);
      EXPECT_EQ(buckets[0].layer_count, 1);
      EXPECT_EQ(buckets[1].codec, codec);
    }
    const PlanCandidates candidates(book, codec);
    for (const PlanFamily& family : candidates.Families()) {
      const PlanCandidate made = candidates.Make(family, 65536, 1 << 20);
      EXPECT_EQ(made.buckets[0].codec, FP32);
      if (made.buckets.back().codec != FP32) {
        EXPECT_EQ(made.buckets[0].layer_count, 1);
      }
    }
  }
}

}  // namespace
}  // namespace poseidon
