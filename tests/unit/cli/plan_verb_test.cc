// What `poseidon plan` computes and shows, for a net whose numbers are worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "cli/planning/plan.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNet[] = R"(
  name: "small"
  layer {
    name: "data" type: "Data" top: "data" top: "label"
    transform_param { crop_size: 8 }
    data_param { source: "/there/is/none" batch_size: 32 backend: LMDB }
  }
  layer {
    name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 64 kernel_size: 1 }
  }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
  layer {
    name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
    inner_product_param { num_output: 4096 }
  }
  layer {
    name: "frozen" type: "InnerProduct" bottom: "fc" top: "frozen"
    param { lr_mult: 0 } param { lr_mult: 0 }
    inner_product_param { num_output: 7 }
  }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
)";

// Of fc, and of what is frozen above it: all of a pass but the gradient of the weights.
constexpr int64_t kMultiplyAddsOfProducts = 4096 * 4096 + 7 * 4096 * 2 / 3;

class PlanVerbTest : public ::testing::Test {
 protected:
  PlanVerbTest() {
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("plan_verb_test." + std::to_string(getpid()) + ".prototxt");
    std::ofstream(path_) << kNet;
    options_.source.net = path_;
    options_.job.mutable_cluster()->set_workers(8);
    options_.job.mutable_cluster()->set_servers(8);
    options_.job.mutable_cluster()->mutable_network()->set_bandwidth("10Gbps");
    options_.source.record_shape = Shape{5, 10, 12};  // the crop makes 5 x 8 x 8 of it
  }
  ~PlanVerbTest() override { std::filesystem::remove(path_); }

  // Of a solver with the net, and more fields.
  PlannedModel PlanOfSolver(const std::string& fields) {
    const std::string solver = path_ + ".solver";
    std::ofstream(solver) << "net: \"" << path_
                          << "\" base_lr: 0.1 lr_policy: \"fixed\" max_iter: 10 " << fields;
    options_.source.net.clear();
    options_.source.solver = solver;
    PlannedModel planned = PlanModel(options_);
    std::filesystem::remove(solver);
    return planned;
  }

  std::string path_;
  PlanOptions options_;
};

// fc is 4096 x 4096 with a bias; for M = N = 4096, K = 32 and 8 workers and servers the paper's
// formulas give 58,720,256 floats over PS (the bias adds 2 * 4096 * 14 / 8) and 3,670,016 over SFB.
TEST_F(PlanVerbTest, PricesLayersAsThePaperDoes) {
  const auto json = nlohmann::json::parse(PlanJson(PlanModel(options_)));
  EXPECT_EQ(json["parameters"], 5 * 64 + 64 + 4096 * 4096 + 4096);
  EXPECT_EQ(json["batch"], 32);
  ASSERT_EQ(json["layers"].size(), 2u);  // what never changes is not synchronized
  const auto& conv = json["layers"][0];
  EXPECT_EQ(conv["name"], "conv");
  EXPECT_EQ(conv["type"], "Convolution");
  EXPECT_EQ(conv["shape"], (std::vector<int>{64, 5, 1, 1}));
  EXPECT_EQ(conv["scheme"], "PS");
  EXPECT_EQ(conv["floats_ps"], 2 * 384 * 14 / 8);
  EXPECT_TRUE(conv["floats_sfb"].is_null());
  const auto& fc = json["layers"][1];
  EXPECT_EQ(fc["scheme"], "SFB");
  EXPECT_EQ(fc["floats_ps"], 58720256 + 2 * 4096 * 14 / 8);
  EXPECT_EQ(fc["floats_sfb"], 3670016);
  EXPECT_EQ(json["total"]["floats_planned"], 2 * 384 * 14 / 8 + 3670016);
}

TEST_F(PlanVerbTest, AServerOnAMachineOfItsOwnIsSentEverything) {
  Cluster& cluster = *options_.job.mutable_cluster();
  cluster.set_workers(1);
  cluster.set_servers(1);
  options_.job.mutable_communication()->set_policy(Communication::ALL_PS);
  EXPECT_EQ(nlohmann::json::parse(PlanJson(PlanModel(options_)))["total"]["floats_ps"], 0);
  cluster.mutable_network()->set_colocated(false);
  const PlannedModel planned = PlanModel(options_);
  const auto json = nlohmann::json::parse(PlanJson(planned));
  const int64_t parameters = json["parameters"];
  EXPECT_EQ(json["total"]["floats_ps"], 2 * parameters);
  EXPECT_EQ(planned.plan.buckets(0).floats_ps() + planned.plan.buckets(1).floats_ps(),
            2 * parameters);
  EXPECT_THAT(PlanTable(planned),
              HasSubstr("floats of each layer that a worker or a server, whichever has more, sends "
                        "and receives in an iteration: "));
}

// A worker sends K (M + N) floats of factors and gets F. A server moves half of that, of each of
// eight workers.
TEST_F(PlanVerbTest, AServerOnAMachineOfItsOwnIsSentTheFactorsOfAllWorkers) {
  Cluster& cluster = *options_.job.mutable_cluster();
  cluster.set_servers(2);
  cluster.mutable_network()->set_colocated(false);
  options_.job.mutable_communication()->set_policy(Communication::ALL_ADAM);
  const auto json = nlohmann::json::parse(PlanJson(PlanModel(options_)));
  ASSERT_EQ(json["layers"][1]["scheme"], "Adam");
  const int64_t parameters = 4096 * 4096 + 4096;
  EXPECT_EQ(json["layers"][1]["floats_ps"], 4 * 2 * parameters);
  EXPECT_EQ(json["total"]["floats_planned"], 4 * (32 * (4096 + 4096) + parameters) + 4 * 2 * 384);
}

TEST_F(PlanVerbTest, PredictsEveryBucket) {
  options_.job.mutable_communication()->set_policy(Communication::TIME);
  const PlannedModel planned = PlanModel(options_);
  // 64 outputs of 5 inputs on 8 x 8 pixels.
  EXPECT_EQ(planned.model.layers(0).multiply_adds(), 64 * 5 * 64);
  EXPECT_EQ(planned.model.layers(1).multiply_adds(), kMultiplyAddsOfProducts);
  const auto json = nlohmann::json::parse(PlanJson(planned));
  // Two operations a multiply-add, three times (backward is two), 32 samples, 4e12 a second.
  const double operations = 2.0 * 3 * 32 * (64 * 5 * 64 + kMultiplyAddsOfProducts);
  EXPECT_NEAR(json["compute_ms"], 1000 * operations / 4e12, 1e-6);
  EXPECT_GT(json["iteration_ms"], json["compute_ms"]);
  std::vector<std::string> layers;
  for (const auto& bucket : json["buckets"]) {
    for (const std::string layer : bucket["layers"]) layers.push_back(layer);
    for (const char* key : {"bytes_sent", "bytes_received", "predicted_ms", "ready_ms", "sent_ms",
                            "fresh_ms", "needed_ms"}) {
      EXPECT_TRUE(bucket[key].is_number()) << key;
    }
    EXPECT_TRUE(bucket["scheme"].is_string());
    EXPECT_EQ(bucket["codec"], "fp32");
    EXPECT_NE(bucket["runner_up"]["scheme"], bucket["scheme"]);
    EXPECT_GT(bucket["runner_up"]["predicted_ms"], 0);
  }
  EXPECT_EQ(layers, (std::vector<std::string>{"conv", "fc"}));
  EXPECT_THAT(PlanTable(planned), HasSubstr("predicted iteration: "));
}

TEST_F(PlanVerbTest, ImagesPerSecondTakeThePlaceOfOperations) {
  options_.source.images_per_second = 320;  // 32 samples: 100 ms
  EXPECT_NEAR(PlanModel(options_).plan.compute_ms(), 100, 1e-6);
}

// A device that trains 320 images a second multiplies and adds that fast when it rebuilds, too,
// unless it is said to be another one.
TEST_F(PlanVerbTest, ImagesPerSecondSayFlops) {
  options_.source.images_per_second = 320;
  const double operations = 2.0 * 3 * (64 * 5 * 64 + kMultiplyAddsOfProducts);
  EXPECT_NEAR(LoadModelAndJob(options_).job.cluster().flops() / (320 * operations), 1, 1e-9);
  // As many as there can be, where somebody wants to know what computing costs.
  options_.source.images_per_second = 1e11;
  EXPECT_EQ(LoadModelAndJob(options_).job.cluster().flops(), 1e18);
  options_.job.mutable_cluster()->set_flops(1e13);
  EXPECT_EQ(LoadModelAndJob(options_).job.cluster().flops(), 1e13);
}

TEST_F(PlanVerbTest, SaysWhatLimits) {
  options_.job.mutable_communication()->set_policy(Communication::ALL_PS);
  const PlannedModel planned = PlanModel(options_);
  EXPECT_THAT(PlanTable(planned), HasSubstr("what limits: the network; if that took no time, "));
  const auto limits = nlohmann::json::parse(PlanJson(planned))["limits"];
  EXPECT_EQ(limits["by"], "the network");
  EXPECT_LT(limits["without_ms"], planned.plan.iteration_ms());
  EXPECT_EQ(limits["changes"][0]["change"], "twice the bandwidth");
  EXPECT_TRUE(limits["setbacks"].empty());
  const double milliseconds = planned.plan.iteration_ms();
  EXPECT_NEAR(limits["iteration_ms"], milliseconds, 1e-6 * milliseconds);
  EXPECT_LT(limits["changes"][0]["iteration_ms"], planned.plan.iteration_ms());
}

TEST_F(PlanVerbTest, OfANetThatComputesNextToNothingNoPercentageIsTold) {
  const std::string share = "% for communication)";
  EXPECT_THAT(PlanTable(PlanModel(options_)), HasSubstr(share));
  options_.source.images_per_second = 1e8;  // an iteration's 32 take 0.3 us
  const std::string table = PlanTable(PlanModel(options_));
  EXPECT_THAT(table, HasSubstr("computing alone: 0.00 ms (nearly all is communication)"));
  EXPECT_THAT(table, Not(HasSubstr(share)));
}

TEST(LimitsTextTest, SaysWhatWouldMakeAnIterationLonger) {
  Limits limits;
  limits.seconds = 0.2;
  limits.by = "computing";
  limits.without = 0.1;
  limits.setbacks.push_back({"twice the bandwidth", 0.225});
  EXPECT_EQ(
      LimitsText(limits),
      "what limits: computing; if that took no time, an iteration would take 100.00 ms\n"
      "twice the bandwidth would make it 12.5% longer: messages would meet that do not now\n");
  const auto json = LimitsJson(limits);
  EXPECT_EQ(json["setbacks"][0]["change"], "twice the bandwidth");
  EXPECT_DOUBLE_EQ(json["setbacks"][0]["iteration_ms"], 225);
  EXPECT_DOUBLE_EQ(json["iteration_ms"], 200);
}

TEST(LimitsTextTest, SaysWhetherATimeIsOfNothingLeftOrOfTheBestChange) {
  Limits limits;
  limits.seconds = 0.2;
  limits.by = "the network";
  limits.without = 0.15;
  limits.at_best = true;
  EXPECT_EQ(LimitsText(limits),
            "what limits: the network; at best an iteration would take 150.00 ms\n");
}

TEST_F(PlanVerbTest, SaysWhatWasTriedAndWhatStoppedIt) {
  options_.job.mutable_cluster()->set_workers(2);
  options_.job.mutable_communication()->set_lanes(1);
  options_.job.mutable_communication()->set_policy(Communication::ALL_PS);
  const PlannedModel unsearched = PlanModel(options_);
  EXPECT_THAT(PlanTable(unsearched), Not(HasSubstr("searched")));
  EXPECT_TRUE(nlohmann::json::parse(PlanJson(unsearched))["search"].is_null());

  options_.job.mutable_communication()->set_policy(Communication::TIME);
  std::set<std::string> tried;
  const auto trial = [&](const Plan& plan, const Job& job, const ModelSpec& model,
                         TrialLength length) {
    tried.insert(plan.SerializeAsString());
    return TryPlan(plan, job, model, length);
  };
  const PlannedModel planned = PlanModel(options_, trial);
  const SearchReport& search = planned.search;
  EXPECT_EQ(search.searches, 2) << "by priority and in order";
  EXPECT_EQ(search.tried, static_cast<int64_t>(tried.size()));
  EXPECT_GT(search.predicted, search.tried);
  EXPECT_EQ(search.hidden + search.complete + search.limited + search.needless, 2);
  EXPECT_THAT(PlanTable(planned), HasSubstr("searched: "));
  EXPECT_EQ(nlohmann::json::parse(PlanJson(planned))["search"]["predicted"], search.predicted);

  // Computing hides everything.
  options_.source.images_per_second = 0.01;
  EXPECT_GE(PlanModel(options_, {}).search.hidden, 1);
}

TEST(SearchTextTest, NamesEveryEnd) {
  const SearchReport search = {.searches = 8,
                               .predicted = 12345,
                               .tried = 3,
                               .too_large = 1,
                               .more_to_try = true,
                               .hidden = 1,
                               .complete = 2,
                               .limited = 4,
                               .needless = 1,
                               .limited_stages = {"sizes", "families"}};
  EXPECT_EQ(
      SearchText(search),
      "searched: 12,345 plans predicted in 8 searches, 3 tried in virtual time, 1 too large "
      "for that, and no more may be tried; 1 search ended as the exchange was hidden, "
      "2 searches ended as nothing better was left, 4 searches ended with the most that one may "
      "predict, before the end of: families, sizes, 1 search ended as another had hidden the "
      "exchange\n");
  EXPECT_EQ(SearchText({}), "");
}

TEST_F(PlanVerbTest, BatchAndPolicyCount) {
  options_.source.batch = 512;
  EXPECT_EQ(PlanModel(options_).plan.buckets(1).floats_sfb(), 16 * 3670016);
  // 2 K 7 (4096 + 4096) <= 2 * 4096^2 * 14 / 8 up to K = 512.
  EXPECT_EQ(PlanModel(options_).plan.buckets(1).scheme(), SFB);
  options_.source.batch = 513;
  EXPECT_EQ(PlanModel(options_).plan.buckets(1).scheme(), PS);
  options_.job.mutable_communication()->set_policy(Communication::ALL_SFB);
  EXPECT_EQ(PlanModel(options_).plan.buckets(1).scheme(), SFB);
}

// Those of all local steps, as its own.
TEST_F(PlanVerbTest, JsonHasAllTimesOfOneUnit) {
  options_.job.mutable_communication()->set_policy(Communication::ALL_RING);
  options_.job.mutable_communication()->set_local_steps(8);
  PlannedModel planned = PlanModel(options_);
  OtherLanes& other = *planned.plan.add_other_lanes();
  other.set_lanes(4);
  other.set_iteration_ms(planned.plan.iteration_ms());
  const auto json = nlohmann::json::parse(PlanJson(planned));
  EXPECT_EQ(json["local_steps"], 8);
  EXPECT_EQ(json["lanes"]["others"].back()["iteration_ms"], json["iteration_ms"]);
}

TEST_F(PlanVerbTest, TableEndsWithTotalsAndBalance) {
  options_.job.mutable_communication()->set_policy(Communication::ALL_PS);
  const std::string table = PlanTable(PlanModel(options_));
  EXPECT_THAT(table, StartsWith("layer  type          weights"));
  EXPECT_THAT(table,
              HasSubstr("fc     InnerProduct  4096 x 4096     PS      58,734,592   3,670,016"));
  EXPECT_THAT(table,
              HasSubstr("16,781,696 parameters; workers: 8, servers: 8, samples a worker: 32"));
  EXPECT_THAT(table, HasSubstr("58,735,936 all over PS, 58,735,936 as planned\n"));
  EXPECT_THAT(table, HasSubstr("the fullest server holds 1."));
}

TEST_F(PlanVerbTest, ReadsTheNetOfASolver) {
  const PlannedModel planned = PlanOfSolver("");
  EXPECT_EQ(planned.model.name(), "small");
  EXPECT_FLOAT_EQ(planned.model.update_rule().base_lr(), 0.1f);
}

TEST_F(PlanVerbTest, ASolverThatAddsUpBatchesHasALargerOne) {
  for (const std::optional<double>& rate : {std::optional<double>(), std::optional(320.0)}) {
    options_.source.images_per_second = rate;
    options_.source.batch = 128;
    const PlannedModel at_once = PlanOfSolver("");
    options_.source.batch = 32;
    const PlannedModel added_up = PlanOfSolver("iter_size: 4");
    EXPECT_EQ(added_up.model.DebugString(), at_once.model.DebugString());
    EXPECT_EQ(added_up.plan.DebugString(), at_once.plan.DebugString());
  }
}

// It needs the norm of the whole gradient.
TEST_F(PlanVerbTest, ASolverThatClipsUpdatesAtTheWorkersAfterTheLastExchange) {
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_ADAM, Communication::TIME}) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    options_.job.mutable_communication()->set_policy(policy);
    const Plan plan = PlanOfSolver("clip_gradients: 10").plan;
    EXPECT_TRUE(plan.wait_for_all());
    for (const BucketPlan& bucket : plan.buckets()) {
      EXPECT_TRUE(bucket.update_at_workers()) << bucket.name();
    }
    EXPECT_FALSE(PlanOfSolver("").plan.wait_for_all());
  }
}

// Servers of tiny KV pairs, with more messages than anybody wants to wait for.
TEST_F(PlanVerbTest, SaysWhatIsOnlyEstimated) {
  options_.job.mutable_communication()->set_policy(Communication::ALL_PS);
  const PlannedModel small = PlanModel(options_);
  EXPECT_THAT(PlanTable(small), HasSubstr("\npredicted iteration: "));
  EXPECT_EQ(nlohmann::json::parse(PlanJson(small))["estimated"], false);
  options_.job.mutable_communication()->set_lanes(1);
  options_.job.mutable_communication()->set_kv_pair_bytes(65536);
  options_.job.mutable_cluster()->set_workers(2000);
  options_.job.mutable_cluster()->set_servers(2000);
  const PlannedModel large = PlanModel(options_);
  EXPECT_THAT(PlanTable(large), HasSubstr("\nestimated iteration: "));
  EXPECT_EQ(nlohmann::json::parse(PlanJson(large))["estimated"], true);
}

TEST(PlanningReportTest, SaysWhatWasFoundWhereItTakesSeconds) {
  std::ostringstream out;
  PlanningReport report(out, Seconds(100));
  const auto said = [&](int lanes, std::optional<double> seconds, double now) {
    Plan plan;
    plan.set_lanes(lanes);
    out.str("");
    report.On(plan, seconds, Seconds(now));
    return out.str();
  };
  EXPECT_EQ(said(1, 0.5, 101), "") << "a quick search says nothing";
  EXPECT_EQ(
      said(1, std::nullopt, 104),
      "planning: for 1 data lane a plan is found, which is too large to be tried; 4.0 s so far\n");
  EXPECT_EQ(said(2, 0.4, 105), "") << "not more often than every two seconds";
  EXPECT_EQ(
      said(2, 0.39, 170),
      "planning: with 2 data lanes an iteration takes 390.0 ms, tried in virtual time; 1 min 10 "
      "s so far\n");
}

}  // namespace
}  // namespace poseidon
