// Points of experiments with real processes: on this machine's own network, and by a remote shell.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "core/child_process.h"
#include "core/error.h"
#include "experiments/process_point.h"
#include "experiments/simulated_point.h"
#include "launch/daemon_watch.h"
#include "launch/network_testbed.h"
#include "planner/policies.h"
#include "proto/replay_model.h"
#include "proto/text_format.h"
#include "tests/free_endpoints.h"
#include "tests/integration/running/link_programs.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// How long a busy machine may need for what takes it a moment else.
constexpr std::chrono::seconds kPatience(60);

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Programs() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
}

bool WaitUntil(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Namespaces that a process has made.
std::set<std::string> NamespacesOf(pid_t pid) {
  std::set<std::string> names;
  std::error_code none_yet;
  for (const auto& entry : std::filesystem::directory_iterator("/var/run/netns", none_yet)) {
    const std::string name = entry.path().filename();
    if (name.rfind("poseidon-" + std::to_string(pid) + "-", 0) == 0) names.insert(name);
  }
  return names;
}

// Why there is no network of namespaces here; nullopt: there is. That it is broken is no reason.
std::optional<std::string> WhyNoTestbed() {
  try {
    CheckCanMakeTestbed();
  } catch (const Error& error) {
    return error.what();
  }
  try {
    const NetworkTestbed testbed({});
    return std::nullopt;
  } catch (const Error& error) {
    // As a kernel says it that refuses a container's root, or lacks a module: permitted, supported.
    if (std::string(error.what()).find("Operation not ") == std::string::npos) throw;
    return error.what();
  }
}

ExperimentPoint MakePoint(const std::string& layers, int workers, const std::string& system) {
  ExperimentPoint point;
  point.job.set_name("test");
  Replay replay;
  ParseText("batch: 16 " + layers, "the test's replay", replay);
  point.model = DescribeReplay(replay).model;
  point.job.mutable_cluster()->set_workers(workers);
  point.job.mutable_cluster()->set_servers(workers);
  point.job.mutable_cluster()->mutable_disturbance();  // none, so that least times are exact
  point.job.mutable_cluster()->mutable_network()->set_bandwidth("1Gbps");
  *point.job.mutable_communication() = FindPolicy(SimulatedPolicies(), system)->second;
  // As points of experiments have it: how many are planned depends on the machine's cores.
  point.job.mutable_communication()->set_lanes(1);
  point.job.mutable_training()->set_engine(Training::REPLAY);
  point.iterations = 3;
  return point;
}

// LeNet's.
constexpr char kLenet[] = R"(
  layers { name: "conv1" parameters: 520 forward_ms: 1 backward_ms: 2 }
  layers { name: "conv2" parameters: 25050 forward_ms: 1 backward_ms: 2 }
  layers { name: "ip1" type: "InnerProduct" inputs: 800 outputs: 500 forward_ms: 1 }
  layers { name: "ip2" type: "InnerProduct" inputs: 500 outputs: 10 backward_ms: 1 })";
// 4 MB, computed in no time: what an iteration takes is the network's.
constexpr char kLarge[] = R"(layers { name: "conv" parameters: 1000000 })";

bool IsFree(int port) {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool is_free = bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(probe);
  return is_free;
}

// A port that is free together with the next one.
int FreePortPair() {
  while (true) {
    const std::string endpoint = FreeEndpoints(1).front();
    const int port = std::stoi(endpoint.substr(endpoint.find(':') + 1));
    if (IsFree(port + 1)) return port;
  }
}

class TestbedTest : public ::testing::Test {
 protected:
  ProcessOptions Options() const {
    ProcessOptions options;
    options.programs = Programs();
    options.directory = directory_.Path("point");
    options.iterations = 3;
    options.deadline = kPatience;
    return options;
  }
  std::string Log(const std::string& name) const {
    return ReadAll(directory_.Path("point/logs/" + name + ".log"));
  }
  // Processes on whose command line this test's directory is.
  std::set<pid_t> Survivors() const {
    std::set<pid_t> pids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::string command;
      std::ifstream file(entry.path() / "cmdline");
      std::getline(file, command);  // nothing of a process that ends meanwhile
      if (command.find(directory_.path()) != std::string::npos) pids.insert(std::stoi(name));
    }
    return pids;
  }
  void ExpectNothingLeft(pid_t pid) const {
    EXPECT_TRUE(WaitUntil([&] { return Survivors().empty(); }))
        << "left behind: " << ::testing::PrintToString(Survivors());
    EXPECT_THAT(NamespacesOf(pid), IsEmpty());
  }

  // A process that executes a point that never ends; returns when it trains.
  pid_t StartEndless(const std::function<void(const ExperimentPoint&, ProcessOptions)>& execute) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Interruption interruption;
      ProcessOptions options = Options();
      options.iterations = 1000000;
      options.interruption = &interruption;
      int code = 0;
      try {
        execute(MakePoint(kLenet, 2, "WFBP"), options);
      } catch (const Error& error) {
        code = static_cast<int>(error.exit_code());
      }
      _exit(code);
    }
    EXPECT_TRUE(
        WaitUntil([&] { return Log("scheduler").find("iteration ") != std::string::npos; }));
    return pid;
  }
  int End(pid_t pid, int signal) {
    kill(pid, signal);
    int status = 0;
    EXPECT_TRUE(WaitUntil([&] { return waitpid(pid, &status, WNOHANG) == pid; })) << "it goes on";
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  TemporaryDirectory directory_;
};

class EmulationTest : public TestbedTest {
 protected:
  void SetUp() override {
    if (const auto reason = WhyNoTestbed()) GTEST_SKIP() << *reason;
  }
  void TearDown() override { ExpectNothingLeft(getpid()); }

  PointResult Emulate(const ExperimentPoint& point) { return EmulatePoint(point, Options()); }

  void ExpectTheBytesOfTheSimulation(const ExperimentPoint& point) {
    const PointResult emulated = Emulate(point);
    const PointResult simulated = SimulatePoint(point);
    EXPECT_EQ(emulated.bytes_sent, simulated.bytes_sent);
    EXPECT_EQ(emulated.bytes_received, simulated.bytes_received);
    EXPECT_EQ(emulated.mean_bytes, simulated.mean_bytes);
    EXPECT_EQ(emulated.schemes, simulated.schemes);
    EXPECT_NEAR(emulated.compute, 0.008, 1e-9);
    EXPECT_NEAR(emulated.predicted, simulated.predicted, 1e-6);
    EXPECT_GT(emulated.iteration, 0.008);
  }

  // All that a process has made ends with it, whose point a signal interrupts.
  void ExpectToLeaveNothingAfter(int signal) {
    const pid_t pid = StartEndless(&EmulatePoint);
    EXPECT_EQ(NamespacesOf(pid).size(), 4u) << "two machines, the scheduler's and the switch";
    EXPECT_EQ(End(pid, signal), static_cast<int>(ExitCode::kInterrupted));
    ExpectNothingLeft(pid);
    std::filesystem::remove_all(directory_.Path("point"));
  }
};

constexpr const char* kSystems[] = {"CAFFE_PS", "WFBP",     "ALL_SFB",
                                    "ALL_ADAM", "ALL_RING", "ALL_HALVING_DOUBLING"};

TEST_F(EmulationTest, MovesTheBytesOfTheSimulation) {
  for (const char* const system : kSystems) {
    SCOPED_TRACE(system);
    ExpectTheBytesOfTheSimulation(MakePoint(kLenet, 2, system));
  }
  // In more than one step.
  ExpectTheBytesOfTheSimulation(MakePoint(kLenet, 4, "ALL_HALVING_DOUBLING"));
}

TEST_F(EmulationTest, SlowMovesTheBytesOfTheSimulationWithMoreWorkers) {
  for (const char* const system : kSystems) {
    SCOPED_TRACE(system);
    ExpectTheBytesOfTheSimulation(MakePoint(kLenet, 4, system));
  }
}

TEST_F(EmulationTest, MovesTheBytesOfTheSimulationWithMachinesOfTheirOwn) {
  ExperimentPoint point = MakePoint(kLenet, 3, "WFBP");
  point.job.mutable_cluster()->set_servers(2);
  point.job.mutable_cluster()->mutable_network()->set_colocated(false);
  ExpectTheBytesOfTheSimulation(point);
}

// An iteration is no faster than the bytes of the busiest direction at the rate, but for what the
// token buckets hold (6% of these bytes).
constexpr double kLeastShare = 0.9;

TEST_F(EmulationTest, LinksLetTheirRateThrough) {
  ExperimentPoint point = MakePoint(kLarge, 2, "WFBP");
  for (const auto& [bandwidth, megabits] : {std::pair{"200Mbps", 200.0}, {"1Gbps", 1000.0}}) {
    point.job.mutable_cluster()->mutable_network()->set_bandwidth(bandwidth);
    const PointResult result = Emulate(point);
    EXPECT_EQ(result.bytes_sent, 4e6);
    EXPECT_GT(result.iteration, kLeastShare * 8 * 4e6 / (megabits * 1e6)) << bandwidth;
    EXPECT_LT(result.busy, 0.5);
  }
}

TEST_F(EmulationTest, OneLinkAndOneWorkerAreSlow) {
  ExperimentPoint point = MakePoint(kLarge, 2, "WFBP");
  Deviation& deviation = *point.condition.add_deviation();
  deviation.set_worker(1);
  deviation.set_bandwidth("100Mbps");
  EXPECT_GT(Emulate(point).iteration, kLeastShare * 8 * 4e6 / 100e6);
  deviation.clear_bandwidth();
  deviation.set_compute_factor(30);
  point.model.mutable_layers(0)->set_backward_ms(10);
  const PointResult result = Emulate(point);
  EXPECT_GT(result.iteration, 0.3);
  EXPECT_NEAR(result.compute, 0.01, 1e-9);
  EXPECT_LT(result.predicted, 0.1);
  // The job says it itself: the planner knows of it, too.
  point.job.mutable_cluster()->mutable_deviation()->Swap(point.condition.mutable_deviation());
  const PointResult known = Emulate(point);
  EXPECT_GT(known.iteration, 0.3);
  EXPECT_NEAR(known.predicted - result.predicted, 29 * 0.01, 0.02);
}

TEST_F(EmulationTest, InSlowMotionItTakesLongerAndSaysTheSame) {
  const ExperimentPoint point = MakePoint(kLenet, 2, "WFBP");
  ProcessOptions options = Options();
  options.slow_motion = 20;
  const auto begin = std::chrono::steady_clock::now();
  const PointResult result = EmulatePoint(point, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // Five iterations that do not count, and three; computing alone takes 8 ms.
  EXPECT_GT(took.count(), 20 * 8 * 0.008);
  const PointResult simulated = SimulatePoint(point);
  EXPECT_EQ(result.bytes_sent, simulated.bytes_sent);
  EXPECT_NEAR(result.compute, 0.008, 1e-9);
  EXPECT_NEAR(result.predicted, simulated.predicted, 1e-5);
  EXPECT_GT(result.iteration, 0.008);
  // It would be half a second without the division.
  EXPECT_LT(result.iteration, 0.2);
}

TEST_F(EmulationTest, TiersShareUplinks) {
  ExperimentPoint point = MakePoint(kLarge, 4, "WFBP");
  Tier& rack = *point.job.mutable_cluster()->mutable_network()->add_tier();
  rack.set_members(2);
  rack.set_bandwidth("200Mbps");
  // Each worker sends half of its gradient, and each server half of its values, to the other rack:
  // 2 MB each, 8 MB a rack.
  EXPECT_GT(Emulate(point).iteration, kLeastShare * 8 * 8e6 / 200e6);
}

TEST_F(EmulationTest, AMachineSendsToOthersInTurns) {
  TestbedOptions options;
  options.links.assign(3, 100'000'000);
  const NetworkTestbed testbed(options);
  const auto start = [&](int machine, std::vector<std::string> arguments, const std::string& log) {
    ChildOptions child;
    child.name = log;
    child.command = testbed.Enter(machine);
    child.command.insert(child.command.end(), {"python3", "-c"});
    child.command.insert(child.command.end(), arguments.begin(), arguments.end());
    child.log = directory_.Path(log);
    return std::make_unique<ChildProcess>(std::move(child));
  };
  const auto many = start(1, {kSink, testbed.address(1)}, "many");
  const auto one = start(2, {kSink, testbed.address(2)}, "one");
  const auto source =
      start(0, {kSource, "3", testbed.address(1) + ":8", testbed.address(2) + ":1"}, "source");
  for (const auto& child : {source.get(), many.get(), one.get()}) {
    EXPECT_TRUE(child->Wait().ok()) << ReadAll(directory_.Path("source"));
  }
  // A ninth if connections shared the link.
  const double share = std::stod(ReadAll(directory_.Path("one")));
  EXPECT_NEAR(share / (share + std::stod(ReadAll(directory_.Path("many")))), 0.5, 0.1);
}

TEST_F(EmulationTest, FailuresAreQuoted) {
  ProcessOptions options = Options();
  options.programs = directory_.Path("programs");
  for (const char* const program : {"scheduler", "server"}) {
    std::filesystem::create_directories(options.programs);
    std::filesystem::create_symlink(Programs() + "/poseidon_" + program,
                                    options.programs + "/poseidon_" + program);
  }
  const std::string worker = directory_.Write(
      "programs/poseidon_worker", "#!/bin/sh\necho loading >&2\necho out of luck >&2\nexit 6\n");
  chmod(worker.c_str(), 0755);
  const std::string message =
      MessageOf<Error>([&] { EmulatePoint(MakePoint(kLenet, 2, "WFBP"), options); });
  EXPECT_THAT(message, AllOf(HasSubstr("worker-"), HasSubstr("exited with code 6"),
                             HasSubstr("loading\nout of luck"), HasSubstr("logs/worker-")));
}

TEST_F(EmulationTest, ADeadlineEndsIt) {
  ProcessOptions options = Options();
  options.iterations = 1000000;
  options.deadline = Seconds(4);
  EXPECT_THROW(EmulatePoint(MakePoint(kLenet, 2, "WFBP"), options), DeadlineExceeded);
}

TEST_F(EmulationTest, AnInterruptionLeavesNothing) { ExpectToLeaveNothingAfter(SIGTERM); }

TEST_F(EmulationTest, SlowOtherInterruptionsLeaveNothing) {
  for (const int signal : {SIGINT, SIGHUP}) ExpectToLeaveNothingAfter(signal);
}

TEST_F(EmulationTest, WhatAKilledProgramLeavesGoesWithTheNextStart) {
  const pid_t pid = StartEndless(&EmulatePoint);
  EXPECT_EQ(End(pid, SIGKILL), -SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return Survivors().empty(); }));
  EXPECT_EQ(NamespacesOf(pid).size(), 4u);
  const NetworkTestbed next({});
  ExpectNothingLeft(pid);
}

TEST(WatchDaemonsTest, WhoIsSlowToEndHasNotFailed) {
  const TemporaryDirectory directory;
  std::vector<ChildProcess> daemons;
  for (const auto& [name, script] : {std::pair{"scheduler", "exit 0"}, {"worker", "sleep 6"}}) {
    ChildOptions options;
    options.name = name;
    options.command = {"/bin/sh", "-c", script};
    options.log = directory.Path(name);
    daemons.emplace_back(std::move(options));
  }
  EXPECT_EQ(WatchDaemons(daemons, {}).code, ExitCode::kSuccess);
}

TEST(WhyNotTest, PointsThatOnlyASimulationCanDo) {
  ExperimentPoint point = MakePoint(kLenet, 2, "WFBP");
  EXPECT_EQ(WhyNotEmulated(point), std::nullopt);
  EXPECT_EQ(WhyNotRun(point, 2), std::nullopt);
  EXPECT_EQ(WhyNotRun(point, 1), "it needs 2 hosts, and there are 1");
  point.condition.add_deviation()->set_bandwidth("1Gbps");
  EXPECT_EQ(WhyNotEmulated(point), std::nullopt);
  EXPECT_THAT(*WhyNotRun(point, 2), HasSubstr("links of real machines"));
  point.job.mutable_cluster()->mutable_deviation()->Swap(point.condition.mutable_deviation());
  EXPECT_THAT(*WhyNotRun(point, 2), HasSubstr("links of real machines"));
  point.job.mutable_cluster()->set_copy_bandwidth("10Gbps");
  EXPECT_THAT(*WhyNotEmulated(point), HasSubstr("copy_bandwidth"));
  point.job.mutable_cluster()->set_devices_per_worker(2);
  EXPECT_THAT(*WhyNotEmulated(point), HasSubstr("devices"));
  EXPECT_THROW(EmulatePoint(point, {}), ConfigError);
}

// A remote shell that runs everything here; some hosts are not there.
class RemoteTest : public TestbedTest {
 protected:
  RemoteTest() {
    remote_.hosts = {{"host0", "127.0.0.1"}, {"host1", "127.0.0.1"}};
    remote_.programs = Programs();
    remote_.directory = directory_.Path("of the user's");
    std::filesystem::create_directory(remote_.directory);
    const std::string shell = directory_.Write("shell",
                                               "#!/bin/sh\n"
                                               "host=$2; shift 2\n"
                                               "case $host in nowhere*)\n"
                                               "  echo \"no route to $host\" >&2; exit 255;; esac\n"
                                               "exec sh -c \"$*\"\n");
    chmod(shell.c_str(), 0755);
    remote_.shell = shell + " -x";
    point_ = MakePoint(kLenet, 2, "WFBP");
    point_.job.mutable_cluster()->set_scheduler_port(FreePortPair());
  }
  void TearDown() override {
    ExpectNothingLeft(getpid());
    EXPECT_TRUE(std::filesystem::is_empty(remote_.directory));
  }

  RemoteOptions remote_;
  ExperimentPoint point_;
};

TEST_F(RemoteTest, MovesTheBytesOfTheSimulation) {
  const PointResult result = RunPoint(point_, Options(), remote_);
  const PointResult simulated = SimulatePoint(point_);
  EXPECT_EQ(result.bytes_sent, simulated.bytes_sent);
  EXPECT_EQ(result.bytes_received, simulated.bytes_received);
  EXPECT_GT(result.iteration, 0.008);
  EXPECT_THAT(Log("worker-1"), HasSubstr("joined as worker 1"));
}

TEST_F(RemoteTest, AHostThatIsNotThereIsNamed) {
  remote_.hosts[1].name = "nowhere7";
  const std::string message = MessageOf<Error>([&] { RunPoint(point_, Options(), remote_); });
  EXPECT_THAT(message, AllOf(HasSubstr("on nowhere7 could not be started there: no route"),
                             HasSubstr("no route to nowhere7")));
}

TEST_F(RemoteTest, FailuresThereAreQuoted) {
  remote_.programs = "/there/is/none";
  const std::string message = MessageOf<Error>([&] { RunPoint(point_, Options(), remote_); });
  EXPECT_THAT(message, HasSubstr("/there/is/none/poseidon_"));
}

TEST_F(RemoteTest, WithItsEndEverythingEnds) {
  for (const int signal : {SIGINT, SIGKILL}) {
    const pid_t pid = StartEndless([&](const ExperimentPoint& endless, ProcessOptions options) {
      ExperimentPoint point = endless;
      point.job.mutable_cluster()->set_scheduler_port(FreePortPair());
      RunPoint(point, options, remote_);
    });
    EXPECT_EQ(End(pid, signal),
              signal == SIGKILL ? -SIGKILL : static_cast<int>(ExitCode::kInterrupted));
    ExpectNothingLeft(pid);
    std::filesystem::remove_all(directory_.Path("point"));
    EXPECT_TRUE(WaitUntil([&] { return std::filesystem::is_empty(remote_.directory); }));
  }
}

}  // namespace
}  // namespace poseidon
