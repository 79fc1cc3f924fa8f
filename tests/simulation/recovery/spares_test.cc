// Processes that wait to take a lost one's rank: the job ends with the parameters of one in which
// nobody died, though nothing is started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kQuickSeeds = 15;
constexpr uint64_t kSeeds = 1000;

constexpr NodeId kSpareWorker{Role::kWorker, -1};
constexpr NodeId kSpareServer{Role::kServer, -1};

// From a loss being known to all going on: no time is spent on waiting for another process. Values
// of these jobs are small.
constexpr double kSecondsToGoOn = 2;

// They come when the others of the job have come.
SimulatedClusterOptions WithSpares(SimulatedClusterOptions options,
                                   const Undisturbed& undisturbed) {
  options.job.mutable_recovery()->set_spare_workers(1);
  options.job.mutable_recovery()->set_spare_servers(1);
  AddNode(kSpareWorker, undisturbed.begun, options);
  AddNode(kSpareServer, undisturbed.begun, options);
  return options;
}

void ExpectEndedWell(const SimulatedCluster& cluster) {
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed) continue;
    ASSERT_TRUE(node.end) << node.id.ToString() << " has not ended";
    EXPECT_EQ(node.end->exit_code(), 0) << node.id.ToString() << ": " << node.end->reason();
  }
}

// The user is told of each spare that takes a rank.
void ExpectTold(const SimulatedCluster& cluster) {
  const auto told = std::ranges::count_if(cluster.scheduler().notices, [](const auto& notice) {
    return notice.find("a spare, takes the place") != std::string::npos;
  });
  const auto took =
      (cluster.node(kSpareWorker).epoch != 0) + (cluster.node(kSpareServer).epoch != 0);
  EXPECT_EQ(told, took);
}

// All workers that live have the undisturbed parameters. Whether the spare one was needed.
bool ExpectSame(const SimulatedCluster& cluster, const SimulatedClusterOptions& options,
                const Parameters& expected) {
  for (const NodeSpec& spec : options.layout.nodes) {
    const NodeRecord& node = cluster.node(spec.id);
    if (spec.id.role != Role::kWorker || node.killed) continue;
    if (node.epoch != 0) {
      EXPECT_EQ(ParametersOf(cluster, spec.id.rank), expected) << node.id.ToString();
    } else {
      EXPECT_EQ(spec.id, kSpareWorker);
      EXPECT_THAT(node.end->reason(), HasSubstr("was not needed"));
    }
  }
  return cluster.node(kSpareWorker).epoch != 0;
}

// A worker, a server or both die for good, the scheduler in every fourth job, too, which returns.
bool ExpectSpareTakesOver(uint64_t seed) {
  const SimulatedClusterOptions plain = RecoveringTraining(seed);
  const int workers = plain.job.cluster().workers();
  const int servers = plain.job.cluster().servers();
  if (workers == 1) return false;  // nobody would have the parameters
  const Undisturbed undisturbed = TrainUndisturbed(plain);
  Faults faults(seed, plain, undisturbed);
  const SimulatedClusterOptions options = WithSpares(plain, undisturbed);
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  const Loss worker = faults.Draw({Role::kWorker, static_cast<int>(seed) % workers});
  const Loss server = faults.Draw({Role::kServer, static_cast<int>(seed / 2) % servers});
  const Loss scheduler = faults.Draw(kTheScheduler);
  if (seed % 3 != 1) job.KillAt(worker.when, worker.node);
  if (seed % 3 != 2) job.KillAt(server.when, server.node);
  if (seed % 4 == 0) {
    job.KillAt(scheduler.when, kTheScheduler);
    job.RestartAt(scheduler.when + scheduler.restart_after, kTheScheduler, true);
  }
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  ExpectEndedWell(cluster);
  if (testing::Test::HasFailure()) return false;
  for (const wire::Recovered& recovered : cluster.scheduler().recoveries) {
    if (seed % 4 == 0) continue;  // while there is no scheduler nobody is asked
    EXPECT_LE(recovered.restored_seconds(), kSecondsToGoOn);
  }
  if (seed % 4 != 0) ExpectTold(cluster);  // one that comes back does not know who was a spare
  return ExpectSame(cluster, options, undisturbed.parameters);
}

void ExpectSparesTakeOver(uint64_t begin, uint64_t end) {
  uint64_t needed = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    needed += ExpectSpareTakesOver(seed);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(needed, (end - begin) / 4);
}

TEST(SpareTest, TakesTheRankOfOneThatDies) { ExpectSparesTakeOver(0, kQuickSeeds); }
// In this job a spare repeats its registration in the moment between the loss and all holding.
TEST(SpareTest, IsToldOfWhenItAsksWhileTheOthersHold) { ExpectSparesTakeOver(161, 162); }
TEST(SpareTest, SlowTakesTheRankOfOneThatDies) {
  ExpectSparesTakeOver(kQuickSeeds, SlowSeeds(kSeeds));
}

SimulatedClusterOptions TinyWithSpares(const Undisturbed& undisturbed) {
  SimulatedClusterOptions options = WithSpares(TinyTrainings().front(), undisturbed);
  options.job.mutable_recovery()->set_replacement_deadline_seconds(5);
  return options;
}

TEST(SpareTest, HearsThatItWasNotNeeded) {
  WatchedJob job(TinyWithSpares(TrainUndisturbed(TinyTrainings().front())));
  SimulatedCluster& cluster = job.cluster();
  ASSERT_TRUE(cluster.Run(kHung));
  ExpectEndedWell(cluster);
  for (const NodeId& spare : {kSpareWorker, kSpareServer}) {
    EXPECT_THAT(cluster.node(spare).end->reason(), HasSubstr("was not needed"));
  }
}

// It has looked for a snapshot when the job had written some, or has some of another training.
TEST(SpareTest, MayHaveFoundASnapshotSince) {
  const Undisturbed undisturbed = TrainUndisturbed(TinyTrainings().front());
  SimulatedClusterOptions options = TinyWithSpares(undisturbed);
  NodeSpec& spare = *std::ranges::find(options.layout.nodes, kSpareWorker, &NodeSpec::id);
  spare.inputs.set_first_iteration(40);
  spare.inputs.set_snapshot("net_iter_40.solverstate");
  WatchedJob job(options);
  job.KillAt(undisturbed.begun + Seconds(0.001), {Role::kWorker, 1});
  ASSERT_TRUE(job.cluster().Run(kHung));
  ExpectEndedWell(job.cluster());
  EXPECT_TRUE(ExpectSame(job.cluster(), options, undisturbed.parameters));
}

// Its supervisor tells of the death by starting another process, and nobody waits for a silence.
TEST(SpareTest, ASupervisorsWordCountsWhereThereIsRoomForASpare) {
  SimulatedClusterOptions options = TinyTrainings().front();
  options.job.mutable_recovery()->set_spare_workers(1);
  const NodeId lost{Role::kWorker, -1};  // which takes the rank that is free
  std::ranges::find(options.layout.nodes, NodeId{Role::kWorker, 1}, &NodeSpec::id)->id = lost;
  const Undisturbed undisturbed = TrainUndisturbed(options);
  WatchedJob job(options);
  const Time when = undisturbed.begun + Seconds(0.001);
  job.KillAt(when, lost);
  job.RestartAt(when + Seconds(0.1), lost, true);
  ASSERT_TRUE(job.cluster().Run(kHung));
  ExpectEndedWell(job.cluster());
  ASSERT_EQ(job.cluster().scheduler().recoveries.size(), 1U);
  const wire::Recovered& recovered = job.cluster().scheduler().recoveries[0];
  EXPECT_LT(recovered.detected_seconds() + recovered.restored_seconds(),
            options.job.communication().heartbeat_deadline_seconds() / 2);
}

// A job that goes on for seconds when its worker 0 has died. Whoever supervises that starts another
// process in its place when a spare has it by then.
class LateTest : public testing::Test {
 protected:
  static SimulatedClusterOptions Plain() {
    SimulatedClusterOptions options = TinyTrainings().front();
    options.work.iterations = 30;
    for (ComputeStep& step : options.work.timeline.steps) {
      step.forward = step.backward = std::chrono::milliseconds(100);
    }
    return options;
  }

  void Start() {
    undisturbed_ = TrainUndisturbed(Plain());
    options_ = WithSpares(Plain(), *undisturbed_);
    Lose();
  }

  void Lose() {
    job_.emplace(options_);
    job_->KillAt(undisturbed_->begun + kSecond, kLost);
    job_->RestartAt(undisturbed_->begun + 4 * kSecond, kLost, true);
  }

  const NodeRecord& node(const NodeId& id) { return job_->cluster().node(id); }

  static constexpr Duration kSecond = std::chrono::seconds(1);
  static constexpr NodeId kLost{Role::kWorker, 0};
  static constexpr NodeId kOutside{Role::kWorker,
                                   -2};  // a second spare, for which there is no room
  std::optional<Undisturbed> undisturbed_;
  SimulatedClusterOptions options_;
  std::optional<WatchedJob> job_;
};

TEST_F(LateTest, IsASpareItself) {
  Start();
  ASSERT_TRUE(job_->cluster().Run(kHung));
  ExpectEndedWell(job_->cluster());
  EXPECT_NE(node(kSpareWorker).epoch, 0U);
  EXPECT_EQ(node(kLost).epoch, 0U);
  EXPECT_THAT(node(kLost).end->reason(), HasSubstr("was not needed"));
}

TEST_F(LateTest, TakesAnyPlaceThatIsLostThen) {
  Start();
  job_->KillAt(undisturbed_->begun + 6 * kSecond, {Role::kWorker, 1});
  ASSERT_TRUE(job_->cluster().Run(kHung));
  ExpectEndedWell(job_->cluster());
  EXPECT_NE(node(kLost).epoch, 0U);
  EXPECT_EQ(ParametersOf(job_->cluster(), kLost.rank), undisturbed_->parameters);
}

// It comes when another worker is waited for already, and all others have stopped.
TEST_F(LateTest, TakesAnyPlaceThatIsFreeAlready) {
  Start();
  job_->KillAt(undisturbed_->begun + std::chrono::milliseconds(2700), {Role::kWorker, 1});
  ASSERT_TRUE(job_->cluster().Run(kHung));
  ExpectEndedWell(job_->cluster());
  EXPECT_NE(node(kLost).epoch, 0U);
  EXPECT_EQ(ParametersOf(job_->cluster(), kLost.rank), undisturbed_->parameters);
}

// And dies there, of which its supervisor tells by starting another one, which wants the first
// rank.
TEST_F(LateTest, IsFollowedByAnother) {
  Start();
  job_->KillAt(undisturbed_->begun + 6 * kSecond, {Role::kWorker, 1});
  job_->KillAt(undisturbed_->begun + 9 * kSecond, kLost);
  job_->RestartAt(undisturbed_->begun + std::chrono::milliseconds(9100), kLost, true);
  ASSERT_TRUE(job_->cluster().Run(kHung));
  ExpectEndedWell(job_->cluster());
  EXPECT_NE(node(kLost).epoch, 0U);
  EXPECT_EQ(ParametersOf(job_->cluster(), kLost.rank), undisturbed_->parameters);
}

TEST_F(LateTest, IsRefusedWhereThereAreSparesEnough) {
  undisturbed_ = TrainUndisturbed(Plain());
  options_ = WithSpares(Plain(), *undisturbed_);
  AddNode(kOutside, undisturbed_->begun + kSecond, options_);
  Lose();
  ASSERT_TRUE(job_->cluster().Run(kHung));
  EXPECT_EQ(node(kLost).end->exit_code(), static_cast<int>(ExitCode::kRefused));
  EXPECT_THAT(node(kLost).end->reason(), HasSubstr("as many workers as recovery.spare_workers"));
  for (const NodeId& id : {kTheScheduler, kSpareWorker, kOutside, NodeId{Role::kWorker, 1}}) {
    EXPECT_EQ(node(id).end->exit_code(), 0) << id.ToString() << ": " << node(id).end->reason();
  }
}

// The job ends badly for its spares as for all.
TEST(SpareTest, HearsOfABadEnd) {
  const Undisturbed undisturbed = TrainUndisturbed(TinyTrainings().front());
  const SimulatedClusterOptions options = TinyWithSpares(undisturbed);
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  // One server after the other, until there is no spare any more.
  job.KillAt(undisturbed.begun + Seconds(0.001), {Role::kServer, 0});
  job.KillAt(undisturbed.begun + Seconds(0.001), {Role::kServer, 1});
  ASSERT_TRUE(cluster.Run(kHung));
  const wire::End& end = *cluster.node(kSpareWorker).end;
  EXPECT_EQ(end.exit_code(), static_cast<int>(ExitCode::kDeadlineExceeded));
  EXPECT_THAT(end.reason(), HasSubstr("nobody took the place"));
}

}  // namespace
}  // namespace poseidon
