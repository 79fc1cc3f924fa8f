// What of an experiment file is refused before anything starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/experiments/experiment_fixture.h"
#include "tests/unit/log_lines.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

using ExperimentCheckTest = ExperimentTest;

TEST_F(ExperimentCheckTest, SaysWhatIsWrongAndWhere) {
  const auto changed = [this](const std::string& what, const std::string& by) {
    return Refusal(Replaced(kExperiment, what, by));
  };
  EXPECT_THAT(changed("system: \"wfbp\"", "system: \"wfpb\""),
              HasSubstr("e.prototxt:20:3: there is no system \"wfpb\"; did you mean \"wfbp\"?"));
  EXPECT_THAT(changed("net: \"small\"", "net: \"smal\""), HasSubstr("did you mean \"small\"?"));
  EXPECT_THAT(changed("policy: \"ALL_TORUS\"", "policy: \"ALL_TOURS\""),
              HasSubstr("did you mean \"ALL_TORUS\"?"));
  EXPECT_THAT(changed("workers: 2", "workers: 0"), HasSubstr("workers must be at least 1"));
  EXPECT_THAT(changed("\"1Gbps\"", "\"1\""), HasSubstr("e.prototxt:22:3: "));
  EXPECT_THAT(changed("\"1Gbps\"", "\"1bps\""), HasSubstr("22:3: bandwidth is 1bps; it must be"));
  EXPECT_THAT(changed("flops: 1e12", "flops: 1e-300"), HasSubstr("cluster.flops is 1e-300"));
  EXPECT_THAT(changed("name: \"test\"", ""), HasSubstr("there is no name; write one"));
  EXPECT_THAT(changed("name: \"test\"", "name: \"../test\""),
              HasSubstr("must be of letters, digits"));
  EXPECT_THAT(changed("name: \"other\"", "name: \"small\""), HasSubstr("there are two nets"));
  EXPECT_THAT(changed("source: \"a book\"", ""), HasSubstr("needs its source"));
  EXPECT_THAT(changed("replay { layers { name: \"a\"", "net: \"x\" replay { layers { name: \"a\""),
              HasSubstr("exactly one of"));
  EXPECT_THAT(changed("sweep {", "sweep { name: \"\""), HasSubstr("a sweep's name is empty"));
  // The other one's number.
  EXPECT_THAT(changed("sweep {", "sweep { name: \"2\""), HasSubstr("there are two sweeps \"2\""));
  EXPECT_THAT(Refusal(std::string(kExperiment) + "figure { name: \"f\" sweep: \"3\" }"),
              HasSubstr("there is no sweep \"3\""));
  // Three is not a multiple of a row's two.
  EXPECT_THAT(changed("system: \"rows\" workers: 4", "system: \"rows\" workers: 3"),
              HasSubstr("small, rows, 3 workers"));
  EXPECT_THAT(Refusal("name: \"empty\" net { name: \"a\" replay { } }"), HasSubstr("no sweep"));
  EXPECT_THAT(changed("lanes: 2", "lanes: 99"), HasSubstr("communication.lanes is 99"));
  EXPECT_THAT(changed("net: \"small\"\n  system", "iterations: 2000000000 system"),
              HasSubstr("iterations is 2000000000; it must be at most 500000"));
}

TEST_F(ExperimentCheckTest, RefusesMoreNodesThanThereCanBe) {
  const auto sweep = [this](const std::string& fields) {
    return Refusal(
        "name: \"t\" net { name: \"n\" replay { layers { name: \"a\" parameters: 7 } } }"
        " sweep { system: \"wfbp\" " +
        fields + " }");
  };
  EXPECT_THAT(sweep("workers: 4 spare_servers: 2147483647"),
              HasSubstr("spare_servers is 2147483647; it must be at most 1000000"));
  EXPECT_THAT(sweep("workers: 2147483647 spare_servers: 1"),
              HasSubstr("workers is 2147483647; it must be at most 1000000"));
  EXPECT_THAT(sweep("cluster { workers: 2147483647 } spare_servers: 1"),
              HasSubstr("cluster.workers is 2147483647; it must be between 1 and 1000000"));
}

// A grid's second size follows from the workers, before these are checked.
TEST_F(ExperimentCheckTest, RefusesRowsOfNoWorkers) {
  EXPECT_THAT(
      Refusal("name: \"t\" net { name: \"n\" replay { layers { name: \"a\" parameters: 7 } } }"
              " system { name: \"t\" policy: \"ALL_TORUS\" grid_row: 2 }"
              " sweep { system: \"t\" cluster { workers: 0 } }"),
      HasSubstr("cluster.workers is 0; it must be between 1 and"));
}

TEST_F(ExperimentCheckTest, RefusesWhatANetDoesNotTake) {
  const auto net = [this](const std::string& fields) {
    return Refusal("name: \"t\" net { name: \"n\" " + fields +
                   " } sweep { system: \"wfbp\" workers: 2 }");
  };
  const std::string replay = "replay { layers { name: \"a\" parameters: 7 } }";
  EXPECT_THAT(net("profile: \"p\" batch: 8"), HasSubstr("1:40: batch can't change a profile"));
  EXPECT_THAT(net("profile: \"p\" input: \"3x8x8\""), HasSubstr("input can't change a profile"));
  // It would be as many samples more in the same time.
  const std::string timed =
      "replay { layers { name: \"a\" parameters: 7 backward_ms: 1 } } batch: 8";
  EXPECT_THAT(net(timed), HasSubstr("batch can't change a replay whose layers have times"));
  EXPECT_EQ(net(timed + " images_per_second: 100"), "not refused");
  EXPECT_EQ(net(replay + " batch: 8"), "not refused");
  EXPECT_THAT(net(replay + " input: \"3x8x8\""), HasSubstr("input can't change a replay"));
  EXPECT_THAT(net("net: \"\""), HasSubstr("names no file"));
  EXPECT_THAT(net(replay + " images_per_second: 1e300"),
              HasSubstr("images_per_second is 1e+300; it must be between 1e-06 and 1000000000"));
  EXPECT_THAT(net("solver: \"s\" train: true iterations: 500001"),
              HasSubstr("iterations is 500001; it must be at most 500000"));
  EXPECT_THAT(net("solver: \"s\" shuffle: false"), HasSubstr("shuffle is of a net to train"));
  EXPECT_THAT(net(replay + " batch: 4294967297"),
              HasSubstr("batch is 4294967297; it must be at most 2147483647"));
}

TEST_F(ExperimentCheckTest, RefusesConditionsThatCanNotBe) {
  const auto conditions = [this](const std::string& text) {
    return Refusal(
        "name: \"t\" net { name: \"n\" replay { layers { name: \"a\" parameters: 7 } } }"
        " sweep { system: \"wfbp\" workers: 2 " +
        text + " }");
  };
  EXPECT_EQ(conditions("condition { name: \"a\" } condition { name: \"b\" "
                       "deviation { worker: 0 compute_factor: 2 bandwidth: \"1Gbps\" } }"),
            "not refused");
  EXPECT_THAT(conditions("condition { name: \"a\" } condition { name: \"a\" "
                         "deviation { worker: 0 compute_factor: 2 } }"),
              HasSubstr("two conditions \"a\" that are not the same"));
  EXPECT_THAT(conditions("condition { name: \"a\" deviation { worker: 1 compute_factor: 2 } "
                         "deviation { worker: 1 bandwidth: \"1Gbps\" } }"),
              HasSubstr("worker 1 is there twice"));
  EXPECT_THAT(conditions("condition { name: \"a\" deviation { worker: 1 compute_factor: 1e300 } }"),
              HasSubstr("compute_factor is 1e+300; it must be between 0.001 and 1000"));
  EXPECT_THAT(conditions("condition { name: \"a\" deviation { worker: 1 bandwidth: \"0bps\" } }"),
              HasSubstr("bandwidth is 0bps; it must be between 100Kbps and 1000Tbps"));
  // Of what is only planned the planner knows or nobody does.
  const std::string slow = "condition { name: \"a\" deviation { worker: 1 compute_factor: 2 } ";
  EXPECT_THAT(conditions("plan_only: true " + slow + "}"),
              HasSubstr("what is only planned is not changed by the condition \"a\"; say known: "
                        "true, or leave plan_only out"));
  EXPECT_EQ(conditions("plan_only: true " + slow + "known: true }"), "not refused");
  EXPECT_EQ(conditions("plan_only: true condition { name: \"a\" }"), "not refused");
  // Of two sweeps, too.
  EXPECT_THAT(
      conditions("condition { name: \"a\" } } sweep { system: \"ring\" workers: 2 condition "
                 "{ name: \"a\" deviation { worker: 0 compute_factor: 2 } }"),
      HasSubstr("two conditions \"a\" that are not the same"));
}

// Predictions are of one switch; TIME tries what it predicts on the network as it is.
TEST_F(ExperimentCheckTest, OnlyTimePlansForTiers) {
  const auto planned = [this](const std::string& systems, const std::string& sweep) {
    return Refusal(
        "name: \"t\" net { name: \"n\" replay { layers { name: \"a\" parameters: 7 } } }"
        " system { name: \"racks\" policy: \"ALL_RING\" cluster { network {"
        "   tier { members: 2 bandwidth: \"1Gbps\" } } } }"
        " sweep { workers: 4 " +
        systems + sweep + " }");
  };
  const std::string tier = " cluster { network { tier { members: 2 bandwidth: \"1Gbps\" } } }";
  const std::string only = " plan_only: true";
  const std::string refused =
      "only policy TIME is planned for network.tier; leave plan_only or the tiers out";
  EXPECT_THAT(planned("system: \"time\" system: \"ring\"", tier + only),
              HasSubstr("n, ring, 4 workers, 10Gbps, 50us: " + refused));
  EXPECT_THAT(planned("system: \"racks\"", only), HasSubstr(refused));
  EXPECT_EQ(planned("system: \"time\"", tier + only), "not refused");
  EXPECT_EQ(planned("system: \"ring\"", only), "not refused");
  EXPECT_EQ(planned("system: \"ring\" system: \"racks\"", tier), "not refused");
}

TEST_F(ExperimentCheckTest, FiguresAreCheckedBeforeAnythingStarts) {
  const auto figure = [this](const std::string& fields) {
    return Refusal(kExperiment + std::string("figure { name: \"f\" ") + fields + " }");
  };
  EXPECT_EQ(figure("panel: \"bandwidth_gbps\" net: \"small\" system: \"ring\""), "not refused");
  EXPECT_THAT(figure("panel: \"bandwith_gbps\""), HasSubstr("did you mean \"bandwidth_gbps\"?"));
  EXPECT_THAT(figure("x: \"worker\""), HasSubstr("there is no column \"worker\""));
  EXPECT_THAT(figure("net: \"smal\""), HasSubstr("there is no net \"smal\""));
  EXPECT_THAT(figure("system: \"rnig\""), HasSubstr("there is no system \"rnig\""));
  EXPECT_THAT(figure("condition: \"slow\""), HasSubstr("there is no condition \"slow\""));
  EXPECT_EQ(figure("workers: 2 workers: 4"), "not refused");
  EXPECT_THAT(figure("workers: 0"), HasSubstr("workers must be at least 1"));
  EXPECT_EQ(figure("ideal: true"), "not refused");
  EXPECT_EQ(figure("ideal: true y: \"iteration_seconds\""), "not refused");
  EXPECT_THAT(figure("ideal: true y: \"gpu_busy\""),
              HasSubstr("nobody knows an ideal gpu_busy; leave `ideal` out, or let y be speedup"));
}

TEST_F(ExperimentCheckTest, AFiguresColorIsReadByItsFormerSpellingToo) {
  // In two pieces, or it would not pass the house's test of spelling.
  const std::string former = std::string("colo") + "ur";
  const std::string comment = "# a \"" + former + ": b\n";
  const std::string title = "title: \"a \\\" " + former + ": b\" ";
  const std::string figure = comment + "figure { name: \"f\" kind: MAP " + title;
  const std::string text = kExperiment + figure + former + ": \"system\" panel: \"model\" }";

  const LogLines log;
  const Experiment experiment = Read(text).experiment;
  EXPECT_EQ(experiment.figure(0).color(), "system");
  EXPECT_EQ(experiment.figure(0).title(), "a \" " + former + ": b");
  EXPECT_THAT(log.lines(), ElementsAre(EndsWith("e.prototxt:30: a figure's \"" + former +
                                                "\" is now called color")));

  const std::string refusal = Refusal(Replaced(text, "panel: \"model\"", "panel: \"modle\""));
  const size_t panel = text.find("panel: ") - text.rfind('\n');
  EXPECT_THAT(refusal,
              HasSubstr("e.prototxt:30:" + std::to_string(panel) + ": there is no column"));
}

}  // namespace
}  // namespace poseidon
