// What real processes get of a point, and which points they can't stand for.
#include "experiments/process_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "core/net/host_address.h"
#include "proto/text_format.h"
#include "tests/unit/experiments/experiment_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

// What the daemons of a point get that can't be started.
class ProcessJobTest : public ExperimentTest {
 protected:
  Job JobFor(const ExperimentPoint& point, const std::map<std::string, int>& cores = {}) const {
    RemoteOptions remote;
    remote.cores = cores;
    for (int i = 0; i < point.job.cluster().workers(); ++i) {
      remote.hosts.push_back({"host" + std::to_string(i), "127.0.0.1"});
    }
    EXPECT_THROW(Run(point, remote), Error);
    return WrittenJob();
  }
  // Of two workers, on hosts that are reached there.
  Job JobAt(const std::string& first, const std::string& second) const {
    EXPECT_THROW(RunAt(first, second, Points(kExperiment)[0]), Error);
    return WrittenJob();
  }

  void RunAt(const std::string& first, const std::string& second,
             const ExperimentPoint& point) const {
    RemoteOptions remote;
    remote.hosts = {{"host0", first}, {"host1", second}};
    Run(point, remote);
  }

  ProcessOptions Options() const {
    ProcessOptions options;
    options.directory = Path("processes");
    return options;
  }
  void Run(const ExperimentPoint& point, RemoteOptions remote) const {
    remote.shell = "false";
    RunPoint(point, Options(), remote);
  }
  Job WrittenJob() const {
    Job job;
    ReadTextFile(Options().directory + "/job.prototxt", job);
    return job;
  }
};

constexpr const char* kElsewhere = "192.0.2.1";  // of a network for documentation (RFC 5737)

// As where /etc/hosts has a machine's own name at 127.0.1.1, and the command is entered there.
TEST_F(ProcessJobTest, OtherHostsGetAnAddressOfThisMachineThatTheyReach) {
  const std::optional<std::string> own = OwnAddressTowards(kElsewhere);
  if (!own) GTEST_SKIP() << "this machine has no network";
  for (const bool is_first : {true, false}) {
    const Job job = is_first ? JobAt("localhost", kElsewhere) : JobAt(kElsewhere, "localhost");
    EXPECT_EQ(job.cluster().scheduler_host(), is_first ? *own : kElsewhere);
    EXPECT_THAT(job.security().allow(), testing::UnorderedElementsAre(*own, kElsewhere));
  }
  const auto refusal = [&](const std::string& first, const std::string& second) {
    return MessageOf<ConfigError>([&] { RunAt(first, second, Points(kExperiment)[0]); });
  };
  EXPECT_THAT(refusal("127.0.0.1", kElsewhere),
              testing::StartsWith("host0 is at 127.0.0.1, a loopback address"));
  EXPECT_THAT(refusal(kElsewhere, "::1"),
              testing::AllOf(testing::StartsWith("host1 is at ::1, a loopback address"),
                             testing::HasSubstr("write its address behind its name")));
}

TEST_F(ProcessJobTest, HostsAreNamedAsTheyWereWhereThatIsAsWell) {
  EXPECT_EQ(JobAt("localhost", "localhost").cluster().scheduler_host(), "localhost");
  // The others may have other addresses for a name, and who may connect is said.
  ExperimentPoint point = Points(kExperiment)[0];
  point.job.mutable_security()->add_allow("10.0.0.0/8");
  EXPECT_THROW(RunAt("-nobody", "10.0.0.2", point), Error);
  EXPECT_EQ(WrittenJob().cluster().scheduler_host(), "-nobody");
}

TEST_F(ProcessJobTest, ReplaysVaryAsSimulatedMachinesDo) {
  ExperimentPoint point = Points(kExperiment)[0];
  EXPECT_EQ(JobFor(point).cluster().disturbance().SerializeAsString(),
            MeasuredDisturbance().SerializeAsString());
  point.job.mutable_cluster()->mutable_disturbance()->set_layer_spread(0.5);
  const Disturbance said = JobFor(point).cluster().disturbance();
  EXPECT_EQ(said.layer_spread(), 0.5);
  EXPECT_EQ(said.iteration_spread(), 0);
}

TEST_F(ProcessJobTest, AConditionWarmsUpAsLongAsItIsSimulated) {
  ExperimentPoint point = Points(kExperiment)[0];
  const int counted = ProcessOptions().iterations;
  EXPECT_EQ(JobFor(point).training().iterations(), 5 + counted);
  Deviation& deviation = *point.condition.add_deviation();
  deviation.set_worker(1);
  deviation.set_compute_factor(2);
  EXPECT_EQ(JobFor(point).training().iterations(), 20 + counted);
}

// The slowest host decides, as all wait for it.
TEST_F(ProcessJobTest, WorkersComputeOnTheCoresOfTheirHosts) {
  ExperimentPoint point = Points(kExperiment)[0];
  EXPECT_EQ(JobFor(point, {{"host0", 8}, {"host1", 6}, {"another", 4}}).training().threads(), 6);
  EXPECT_EQ(JobFor(point).training().threads(), 1);
  point.job.mutable_training()->set_threads(3);
  EXPECT_EQ(JobFor(point, {{"host0", 8}, {"host1", 6}}).training().threads(), 3);
}

// Else a report would set a simulation with slow protocols beside links without.
TEST_F(ExperimentTest, EmulatedLinksLeavePayloadWhatSimulatedOnesDo) {
  ExperimentPoint point = Points(kExperiment)[0];
  Network& network = *point.job.mutable_cluster()->mutable_network();
  network.set_bandwidth("10Gbps");
  network.set_goodput_share(0.5);
  Tier& tier = *network.add_tier();
  tier.set_members(1);
  tier.set_bandwidth("4Gbps");
  Deviation& deviation = *point.condition.add_deviation();
  deviation.set_worker(1);
  deviation.set_bandwidth("1Gbps");
  constexpr double kOfTcp = 0.955;
  const TestbedOptions half = TestbedFor(point);
  ASSERT_EQ(half.links.size(), 2);
  EXPECT_NEAR(half.links[0], 5e9 / kOfTcp, 1);
  EXPECT_NEAR(half.links[1], 5e8 / kOfTcp, 1);
  EXPECT_NEAR(half.tiers.at(0).bits_per_second, 2e9 / kOfTcp, 1);
  // No link lets more through than its rate.
  network.set_goodput_share(1);
  const TestbedOptions whole = TestbedFor(point);
  EXPECT_EQ(whole.links[0], 10'000'000'000);
  EXPECT_EQ(whole.links[1], 1'000'000'000);
  EXPECT_EQ(whole.tiers.at(0).bits_per_second, 4'000'000'000);
}

// Else each would fail by the words of a field that nobody has set.
TEST_F(ExperimentTest, SlowMotionEndsWhereDaemonsWouldRefuseTheJob) {
  const std::vector<ExperimentPoint> points = Points(kExperiment);
  std::vector<const ExperimentPoint*> all = {&points[0], &points[1]};
  const auto refusal = [&](int slow_motion) {
    return MessageOf<ConfigError>([&] { CheckSlowMotion(all, slow_motion); });
  };
  EXPECT_EQ(refusal(2000), "");
  EXPECT_THAT(refusal(2001),
              testing::StartsWith("--slow_motion is 2001; it must be at most 2000, since with 2001 "
                                  "cluster.update_rate is 999500"));
  ExperimentPoint slower = points[1];
  slower.job.mutable_cluster()->mutable_network()->set_latency("100ms");
  all.push_back(&slower);
  EXPECT_EQ(refusal(600), "");
  for (const int much : {601, 2001, 1'000'000}) {
    EXPECT_THAT(refusal(much),
                testing::HasSubstr("it must be at most 600, since with 601 cluster."));
  }
  // What is trained takes as long as it takes.
  ExperimentPoint trained = points[0];
  trained.job.mutable_training()->set_engine(Training::TORCH);
  all = {&trained};
  EXPECT_EQ(refusal(1'000'000), "");
}

// 0.9 of 100 Mb/s are 100 kb/s, the least that a link has, when they are 900 times as slow.
TEST_F(ExperimentTest, ALinkOfAConditionEndsSlowMotionAsOneOfTheJobDoes) {
  ExperimentPoint condition = Points(kExperiment)[0];
  ExperimentPoint own = condition;
  for (Deviation* const deviation :
       {condition.condition.add_deviation(), own.job.mutable_cluster()->add_deviation()}) {
    deviation->set_worker(1);
    deviation->set_bandwidth("100Mbps");
  }
  condition.condition.set_name("slow");
  const auto expect_limit = [](const ExperimentPoint& point, const std::string& where) {
    EXPECT_NO_THROW(CheckSlowMotion({&point}, 899));
    EXPECT_THAT(
        MessageOf<ConfigError>([&] { CheckSlowMotion({&point}, 900); }),
        testing::StartsWith("--slow_motion is 900; it must be at most 899, since with 900 " +
                            where + "cluster.network.goodput_share is 0.9"));
  };
  expect_limit(condition, "in the condition \"slow\" ");
  expect_limit(own, "");
  // Both say something of one machine.
  *own.condition.mutable_deviation() = condition.condition.deviation();
  own.condition.mutable_deviation(0)->set_bandwidth("50Mbps");
  EXPECT_NO_THROW(CheckSlowMotion({&own}, 449));
  EXPECT_THROW(CheckSlowMotion({&own}, 450), ConfigError);
}

TEST_F(ExperimentTest, ALayerTakesAtMostAnHourInSlowMotion) {
  ExperimentPoint point = Points(kExperiment)[0];
  point.model.mutable_layers(0)->set_forward_ms(36'000);
  EXPECT_THAT(MessageOf<ConfigError>([&] { CheckSlowMotion({&point}, 101); }),
              testing::HasSubstr("at most 100, since with 101 replay: layer \"conv\": forward_ms"));
}

// As those of all other systems, which have no local steps.
TEST_F(ExperimentTest, LocalStepsAreOnlySimulated) {
  ExperimentPoint point = Points(kExperiment)[0];
  EXPECT_EQ(WhyNotEmulated(point), std::nullopt);
  point.job.mutable_communication()->set_local_steps(4);
  EXPECT_EQ(WhyNotEmulated(point), "local steps are only simulated");
  EXPECT_EQ(WhyNotRun(point, 1000), "local steps are only simulated");
}

// A replay would not wait for the last layer before it updates the first.
TEST_F(ExperimentTest, ReplaysDoNotClipGradients) {
  ExperimentPoint point = Points(kExperiment)[0];
  point.model.mutable_update_rule()->set_deferred(true);
  for (const auto& reason : {WhyNotEmulated(point), WhyNotRun(point, 1000)}) {
    EXPECT_EQ(reason, "clip_gradients is only simulated, unless the net is trained");
  }
  point.job.mutable_training()->set_engine(Training::TORCH);
  EXPECT_EQ(WhyNotEmulated(point), std::nullopt);
}

}  // namespace
}  // namespace poseidon
