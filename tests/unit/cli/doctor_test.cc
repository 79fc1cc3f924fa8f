// What the doctor says of a measured network, and how it shows what it has found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/solver_state.h"
#include "cli/doctor/doctor_output.h"
#include "cli/doctor/job_needs.h"
#include "cli/doctor/network_checks.h"
#include "proto/job_config.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

constexpr const char* kJob = R"(
    cluster { workers: 2 servers: 2 network { bandwidth: "10Gbps" latency: "100us" } }
    communication { policy: BYTES }
    training { engine: REPLAY replay { batch: 8
      layers { name: "conv" parameters: 1000000 forward_ms: 2 backward_ms: 4 }
      layers { name: "fc" type: "InnerProduct" inputs: 1000 outputs: 999 forward_ms: 1 } } })";

std::vector<HostLink> OneLink(double latency, double goodput) {
  std::vector<wire::LinkReport> reports(2);
  reports[1].set_rank(1);
  wire::LinkMeasurement* const link = reports[1].add_links();
  link->set_distance(1);
  link->set_latency_seconds(latency);
  link->set_goodput_bytes_per_second(goodput);
  return LinksBetween(reports, {"node0", "node1"});
}

Findings Checked(double latency, double goodput) {
  const Network claimed = ParseJobConfig(kJob, "job").job.cluster().network();
  return CheckLinks(OneLink(latency, goodput), claimed);
}

const LinkMeasurements kSilence = {{}, "node 1 is missing", true};

// Which no other port would change.
TEST(CheckPorts, DaemonsThatDoNotRunAreAnErrorAlsoBesideTheJob) {
  for (const bool taken : {false, true}) {
    const Findings failed = CheckPorts({}, taken, {{}, "worker 1 could not be started", false});
    EXPECT_EQ(failed.back().level, FindingLevel::kError);
    EXPECT_EQ(failed.back().text,
              "daemons on the hosts could not run: worker 1 could not be started");
    EXPECT_EQ(failed.back().mend, "as it says");
  }
}

TEST(CheckPorts, WhatWasNotTriedAtTheConfigsOwnPortIsNoError) {
  Cluster cluster;
  cluster.set_scheduler_host("10.0.0.1");
  cluster.set_scheduler_port(29000);
  const Findings failed = CheckPorts(cluster, /*taken=*/true, kSilence);
  ASSERT_EQ(failed.size(), 2u);
  EXPECT_EQ(CountOf(FindingLevel::kError, failed), 0);
  EXPECT_EQ(failed[0].text,
            "port 29000 of this machine, the scheduler's, or the next one is taken, as by the job "
            "itself while it runs");
  EXPECT_EQ(failed[1].check, "links");
  EXPECT_EQ(failed[1].text,
            "have not been measured: daemons on the hosts could not meet at another port: node 1 "
            "is missing");
  EXPECT_EQ(failed[1].mend,
            "look again when nothing listens at port 29000 of this machine and the next one");
  const Findings met = CheckPorts(cluster, /*taken=*/true, {});
  ASSERT_EQ(met.size(), 2u);
  EXPECT_THAT(met[0].text, HasSubstr("while it runs; links are measured at another one"));
  EXPECT_EQ(met[1].level, FindingLevel::kGood);
}

TEST(CheckPorts, ThoseToOpenAreTheConfigsOwn) {
  Cluster cluster;
  const Findings any = CheckPorts(cluster, /*taken=*/false, kSilence);
  ASSERT_EQ(any.size(), 1u);
  EXPECT_EQ(any[0].level, FindingLevel::kError);
  EXPECT_EQ(any[0].text, "daemons on the hosts could not meet: node 1 is missing");
  EXPECT_THAT(any[0].mend, HasSubstr("ports 20000 to 32000 of this machine"));
  cluster.set_scheduler_port(29000);
  EXPECT_THAT(CheckPorts(cluster, /*taken=*/false, kSilence)[0].mend,
              HasSubstr("ports 29000 and 29001 of this machine"));
}

TEST(CheckLinks, SaysBothFigures) {
  const Findings findings = Checked(90e-6, 1.1e9);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, FindingLevel::kGood);
  EXPECT_EQ(findings[0].text,
            "node1 to node0: 0.090 ms, 8.80 Gb/s; the config says 0.100 ms, 9.40 Gb/s");
}

TEST(CheckLinks, WarnsOfSlowAndLateOnes) {
  EXPECT_EQ(Checked(90e-6, 0.9e9)[0].level, FindingLevel::kWarning);
  EXPECT_EQ(Checked(300e-6, 1.1e9)[0].level, FindingLevel::kWarning);
  EXPECT_THAT(Checked(300e-6, 1.1e9)[0].mend, HasSubstr("cluster.network"));
  EXPECT_THAT(Checked(90e-6, 0)[0].text, HasSubstr("no burst has arrived"));
}

TEST(CheckLinks, ClaimsNothingWithoutANetworkInTheConfig) {
  const Findings findings = CheckLinks(OneLink(1, 1e6), std::nullopt);
  EXPECT_EQ(findings[0].level, FindingLevel::kGood);
  EXPECT_EQ(findings[0].text, "node1 to node0: 1000.000 ms, 8.0 Mb/s");
}

size_t LinesOf(FindingLevel level, const Findings& findings) {
  return static_cast<size_t>(CountOf(level, findings));
}

// Of many links no good one is lost in the count, and the slowest are named.
TEST(CheckLinks, ManyLinksShareLines) {
  const Network claimed = ParseJobConfig(kJob, "job").job.cluster().network();
  std::mt19937 random(1);
  for (const size_t hosts : {9, 12, 30}) {
    for (const double share : {0.0, 0.02, 0.5, 1.0}) {
      SCOPED_TRACE(std::to_string(hosts) + " hosts, " + std::to_string(share) + " slow");
      std::vector<HostLink> links;
      std::vector<double> slow;
      for (size_t from = 0; from < hosts; ++from) {
        for (size_t to = 0; to < hosts; ++to) {
          if (from == to) continue;
          const bool is_slow = std::bernoulli_distribution(share)(random);
          const double goodput = std::uniform_real_distribution<>(1e8, 2e8)(random);
          if (is_slow) slow.push_back(goodput);
          links.push_back(
              {std::to_string(from), std::to_string(to), 90e-6, is_slow ? goodput : 10 * goodput});
        }
      }
      // Ten times what the slow ones have at most is at least the claim.
      Network network = claimed;
      network.set_bandwidth("8Gbps");
      network.set_goodput_share(1);
      const Findings findings = CheckLinks(links, network);
      const size_t good = links.size() - slow.size();
      ASSERT_EQ(LinesOf(FindingLevel::kGood, findings), good > 0 ? 1u : 0u);
      if (good > 0) {
        EXPECT_THAT(findings[0].text,
                    HasSubstr(std::to_string(good) + " of " + std::to_string(links.size())));
      }
      ASSERT_EQ(LinesOf(FindingLevel::kWarning, findings), std::min<size_t>(slow.size(), 11));
      if (slow.size() > 10) {
        EXPECT_THAT(findings.back().text,
                    HasSubstr(std::to_string(slow.size() - 10) + " more links"));
      }
    }
  }
}

// Among many that are slow, too: ten get a line, and the worst in anything are among these.
TEST(CheckLinks, ALateLinkIsNamedAmongSlowOnes) {
  const Network claimed = ParseJobConfig(kJob, "job").job.cluster().network();
  std::vector<HostLink> links(60, {"slow", "slow", 90e-6, 0.5e9});
  links.push_back({"late", "node0", 20e-3, 1.1e9});
  links.push_back({"dead", "node0", 90e-6, 0});
  const Findings findings = CheckLinks(links, claimed);
  ASSERT_EQ(findings.size(), 11u);
  EXPECT_THAT(findings[0].text, HasSubstr("dead to node0"));
  EXPECT_THAT(findings[1].text, HasSubstr("late to node0"));
  EXPECT_THAT(findings[10].text, HasSubstr("52 more links"));
}

// Whatever the hosts' number is, all of them or those at some distances.
TEST(LinksBetween, NamesBothEnds) {
  std::vector<wire::LinkReport> reports(3);
  for (int rank = 0; rank < 3; ++rank) {
    reports[static_cast<size_t>(rank)].set_rank(rank);
    for (int distance = 1; distance < 3; ++distance) {
      reports[static_cast<size_t>(rank)].add_links()->set_distance(distance);
    }
  }
  std::set<std::string> pairs;
  for (const HostLink& link : LinksBetween(reports, {"a", "b", "c"})) {
    pairs.insert(link.from + link.to);
  }
  EXPECT_THAT(pairs, ::testing::ElementsAre("ab", "ac", "ba", "bc", "ca", "cb"));
}

Findings Compared(const std::string& bandwidth, const std::string& latency = "100us") {
  const JobConfig config = ParseJobConfig(kJob, "job");
  Network measured;
  measured.set_bandwidth(bandwidth);
  measured.set_goodput_share(0.94);
  measured.set_latency(latency);
  return ComparePlans(config.job, *RequirementsOf(config).model, measured);
}

TEST(ComparePlans, TheSameNetworkMakesTheSamePlan) {
  const Findings findings = Compared("10Gbps");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, FindingLevel::kGood);
  EXPECT_THAT(findings[0].text, HasSubstr("ms an iteration (1 PS, 1 SFB), with the measured one"));
}

TEST(ComparePlans, ASlowerOneIsToBeWrittenDown) {
  const Findings findings = Compared("1Gbps");
  EXPECT_EQ(findings[0].level, FindingLevel::kWarning);
  EXPECT_THAT(findings[0].mend, HasSubstr("network { bandwidth: \"1Gbps\""));
}

TEST(ComparePlans, NobodyWritesNineDigitsDown) {
  EXPECT_THAT(Compared("943456789bps", "52149ns")[0].mend,
              HasSubstr("network { bandwidth: \"943Mbps\" goodput_share: 1 latency: \"52.1us\" }"));
  EXPECT_THAT(Compared("999999999bps", "0ns")[0].mend, HasSubstr("bandwidth: \"1Gbps\""));
  EXPECT_THAT(Compared("123bps", "7ns")[0].mend,
              HasSubstr("bandwidth: \"123bps\" goodput_share: 1 latency: \"7ns\""));
}

TEST(ComparePlans, WhatElseTheConfigSaysOfItsNetworkStays) {
  JobConfig config = ParseJobConfig(kJob, "job");
  Network& network = *config.job.mutable_cluster()->mutable_network();
  network.set_colocated(false);
  network.set_message_cost("100us");
  Network measured = network;
  measured.set_bandwidth("1Gbps");
  EXPECT_THAT(ComparePlans(config.job, *RequirementsOf(config).model, measured)[0].mend,
              HasSubstr("network { bandwidth: \"1Gbps\" goodput_share: 1 latency: \"100us\" "
                        "colocated: false message_cost: \"100us\" }"));
}

// A job that does not describe its network has one lane, however fast that is.
TEST(ComparePlans, LanesAreTheJobs) {
  JobConfig config = ParseJobConfig(kJob, "job");
  const ModelSpec model = *RequirementsOf(config).model;
  config.job.mutable_cluster()->clear_network();
  config.job.mutable_cluster()->set_update_rate(1e8);
  config.job.mutable_communication()->set_policy(Communication::ALL_PS);
  Network measured;
  measured.set_bandwidth("100Gbps");
  const std::string text = ComparePlans(config.job, model, measured)[0].text;
  config.job.mutable_communication()->set_lanes(1);
  EXPECT_EQ(ComparePlans(config.job, model, measured)[0].text, text);
}

TEST(JobNeeds, AreThoseOfTheModel) {
  const JobRequirements alone = RequirementsOf(ParseJobConfig(kJob, "job"));
  constexpr int64_t kBytes = 4 * (1000000 + 999 * 1000 + 999);
  EXPECT_EQ(alone.needs.bytes_per_worker, 3 * kBytes);
  EXPECT_EQ(alone.needs.bytes_per_server, 3 * kBytes / 2);
  EXPECT_EQ(alone.needs.snapshot_bytes, 2 * kBytes);
  EXPECT_EQ(alone.needs.snapshot_directory, "");
  EXPECT_EQ(alone.needs.nodes, 4);
  const std::string recovering = std::string(kJob) + "recovery { mode: REPLACE }";
  EXPECT_EQ(RequirementsOf(ParseJobConfig(recovering, "job")).needs.bytes_per_worker, 5 * kBytes);
}

TEST(JobNeeds, AreThoseOfASolversFiles) {
  const JobRequirements lenet = RequirementsOf(ReadJobConfig("configs/lenet_digits.prototxt"));
  EXPECT_THAT(lenet.files,
              ::testing::ElementsAre(HasSubstr("solver.prototxt"), HasSubstr("net.prototxt")));
  EXPECT_THAT(lenet.data, ::testing::ElementsAre("out/digits/train_lmdb"));
  EXPECT_THAT(lenet.test_data, ::testing::ElementsAre("out/digits/test_lmdb"));
  EXPECT_EQ(lenet.needs.snapshot_directory, "");
}

TEST(JobNeeds, ThePlanIsOfTheJobsBatch) {
  JobConfig config = ReadJobConfig("configs/lenet_digits.prototxt");
  config.job.mutable_training()->set_batch_per_worker(8);
  EXPECT_EQ(RequirementsOf(config).model->batch(), 8);
}

TEST(JobNeeds, TheModelIsUpdatedAsTheJobSays) {
  JobConfig config = ReadJobConfig("configs/lenet_digits.prototxt");
  EXPECT_FALSE(RequirementsOf(config).model->update_rule().deferred());
  config.job.mutable_training()->mutable_large_batch()->mutable_lars();
  EXPECT_TRUE(RequirementsOf(config).model->update_rule().deferred());
}

TEST(JobNeeds, AreWindowsAndWhatWorkerZeroStartsFrom) {
  const TemporaryDirectory directory;
  const std::string net = directory.Write("net.prototxt", R"(
      layer { name: "data" type: "WindowData" top: "data" top: "label"
        transform_param { crop_size: 9 } window_data_param { source: "windows" batch_size: 4 } }
      layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 2 } }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" })");
  const std::string solver =
      directory.Write("solver.prototxt", "net: '" + net +
                                             "' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 "
                                             "weights: 'a.caffemodel, b.caffemodel'");
  const auto prefixed =
      directory.Write("prefixed.prototxt", "net: '" + net +
                                               "' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 "
                                               "weights: 'a.caffemodel, b.caffemodel' "
                                               "snapshot_prefix: '" +
                                               directory.Path("x") + "'");
  const auto of_latest = [&](const std::string& path) {
    return RequirementsOf(
               ParseJobConfig("training { solver: '" + path + "' snapshot: 'latest' }", "job"))
        .start;
  };
  const auto needs = [&](const std::string& start) {
    return RequirementsOf(
        ParseJobConfig("training { solver: '" + solver + "' " + start + " }", "job"));
  };
  EXPECT_THAT(needs("").data, ::testing::ElementsAre("windows"));
  EXPECT_THAT(needs("").start, ::testing::ElementsAre("a.caffemodel", "b.caffemodel"));
  EXPECT_THROW(of_latest(solver), ConfigError) << "there is no prefix";
  EXPECT_THAT(of_latest(prefixed), ::testing::ElementsAre("a.caffemodel", "b.caffemodel"));
  EXPECT_THAT(needs("weights: 'c'").start, ::testing::ElementsAre("c"));
  EXPECT_THAT(needs("snapshot: 'd'").start, ::testing::ElementsAre("d"));
  // What the training began with may be gone by now.
  const std::string written = directory.Path("x_iter_7");
  NetDescription one;
  one.layers.resize(1);
  one.layers[0].parameter.set_name("a");
  one.layers[0].parameters = {{.shape = {1}, .filler = {}}};
  WriteCaffemodel(written + ".caffemodel", one, {{{1}}});
  WriteSolverState(
      written + ".solverstate",
      {.iteration = 7, .learned_net = written + ".caffemodel", .history = {{{1}, {0}}}});
  EXPECT_THAT(of_latest(prefixed), ::testing::IsEmpty());
}

TEST(JobNeeds, SnapshotsGoWhereTheSolverSays) {
  const JobConfig config = ParseJobConfig(
      R"(training { solver: "configs/models/cifar10_full/solver.prototxt" })", "job");
  EXPECT_NE(RequirementsOf(config).needs.snapshot_directory, "");
}

const Findings kFindings = {
    {FindingLevel::kGood, "reach", "2 host(s) answer"},
    {FindingLevel::kError, "clocks", "the clock of node1 is 3.2 s ahead", "timedatectl"}};

TEST(DoctorOutput, ALineAFinding) {
  EXPECT_EQ(FindingsText(kFindings),
            "good     reach     2 host(s) answer\n"
            "error    clocks    the clock of node1 is 3.2 s ahead; mend: timedatectl\n"
            "1 error, 0 warnings\n");
}

TEST(DoctorOutput, JsonForPrograms) {
  const auto json = nlohmann::json::parse(FindingsJson(kFindings, OneLink(0.002, 3)));
  EXPECT_EQ(json["errors"], 1);
  EXPECT_EQ(json["warnings"], 0);
  ASSERT_EQ(json["findings"].size(), 2u);
  EXPECT_TRUE(json["findings"][0]["mend"].is_null());
  EXPECT_EQ(json["findings"][1]["level"], "error");
  EXPECT_EQ(json["findings"][1]["check"], "clocks");
  EXPECT_EQ(json["findings"][1]["mend"], "timedatectl");
}

}  // namespace
}  // namespace poseidon
