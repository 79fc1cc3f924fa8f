// The matrix of faults: to each of many small random jobs happen one to four faults of any kind at
// any moment, or at any message, and it ends with the bits of one to which nothing happens. What is
// watched on the way is in watched_job.h. Jobs that go on with fewer, and those that workers come
// to and leave, are shrink_test.cc's and elastic_test.cc's.
//
// A failure prints the seed and the faults that it has drawn. The slow seeds are cut into cases, so
// that several processes can share them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/recovery/recovery_case.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one, in shards.
constexpr uint64_t kQuickSeeds = 120;
constexpr uint64_t kSeeds = 100000;
constexpr int kShards = 10;

using C = Communication;

// A job that takes milliseconds to simulate: the seed's first random one that is so small.
SimulatedClusterOptions SmallJob(uint64_t seed) {
  constexpr uint64_t kStride = 1'000'003;  // a prime: other seeds try other jobs
  SimulatedClusterOptions options;
  for (uint64_t attempt = 0;; ++attempt) {
    options = RecoveringTraining(seed + attempt * kStride);
    const int workers = options.job.cluster().workers();
    if (workers < 2 || workers > 4 || options.job.cluster().servers() > 3) continue;
    if (options.work.model.layers_size() <= 3) break;
  }
  options.work.iterations = 2 + static_cast<int64_t>(seed % 7);
  // A quarter of them each: all layers, or those that a policy leaves to servers, are theirs.
  if (seed % 4 == 1) options = UpdatingAtServers(std::move(options), C::ALL_PS);
  if (seed % 4 == 3) {
    options = UpdatingAtServers(std::move(options), seed % 8 == 3 ? C::ALL_ADAM : C::BYTES);
  }
  return options;
}

// Dies when a message of this kind arrives anywhere for the `count`th time.
struct LossAtMessage {
  Loss loss;
  MessageKind kind{};
  int count = 0;
};

// What has to do with recovery, and what a fault at a random moment seldom meets.
constexpr MessageKind kKinds[] = {
    MessageKind::kRegister,   MessageKind::kView,       MessageKind::kJoined,
    MessageKind::kPlan,       MessageKind::kReady,      MessageKind::kStart,
    MessageKind::kHold,       MessageKind::kLaneHeld,   MessageKind::kHoldings,
    MessageKind::kLocalReady, MessageKind::kJournal,    MessageKind::kJournaled,
    MessageKind::kPauseAt,    MessageKind::kPaused,     MessageKind::kFinished,
    MessageKind::kReplica,    MessageKind::kReplicated, MessageKind::kInitialValues,
    MessageKind::kPeerSilent, MessageKind::kProgress,   MessageKind::kInitialOptimizerState,
};

enum class Network { kGood, kCut, kCutOneWay, kLate, kLossy };

class MatrixCase {
 public:
  explicit MatrixCase(uint64_t seed)
      : random_(seed),
        plan_seed_(seed),
        options_(SmallJob(seed)),
        undisturbed_(TrainUndisturbed(options_)),
        faults_(seed, options_, undisturbed_) {
    if (testing::Test::HasFailure()) return;
    DrawNetwork();
    for (uint64_t count = 1 + Roll(4); count > 0; --count) DrawLoss();
    if (Roll(8) == 0 && network_ == Network::kGood) AddSpares();
    if (Roll(8) == 0) DrawSlowMachine();
    changes_plan_ = Roll(8) == 0 && options_.job.communication().update_at() != C::SERVERS;
    if (changes_plan_) log_ += "the plan changes; ";
  }

  // How many recoveries there were.
  int Run() {
    SCOPED_TRACE(log_);
    WatchedJob job(Prepared());
    job_ = &job;
    for (const Loss& loss : losses_) Lose(loss, job);
    if (network_ != Network::kGood) {
      job.DisturbedUntil(network_until_);
      Supervise(job.cluster());
    }
    if (changes_plan_) AskAt(undisturbed_.begun, RandomPlan(options_, plan_seed_), job.cluster());
    EXPECT_TRUE(job.cluster().Run(kHung)) << "it hangs";
    if (!testing::Test::HasFailure() && !LostAll(job.cluster(), AllLosses())) {
      Check(job.cluster());
    }
    return static_cast<int>(job.cluster().scheduler().recoveries.size());
  }

 private:
  uint64_t Roll(uint64_t count) { return random_() % count; }

  void DrawNetwork() {
    if (Roll(3) > 0) return;
    network_ = static_cast<Network>(1 + Roll(4));
    const Loss draw = faults_.Draw();
    cut_ = draw.node;
    network_from_ = draw.when;
    network_until_ = draw.when + 3 * draw.restart_after;
    const char* const what[] = {"", "cut off: ", "cut off one way: ", "late frames, not of ",
                                "lost frames, not of "};
    log_ += what[static_cast<int>(network_)] + ToString(draw);
  }

  void DrawLoss() {
    Loss loss = Roll(5) == 0 ? faults_.Draw(kTheScheduler) : faults_.Draw();
    if (!losses_.empty() && Roll(4) == 0) loss.node = losses_.back().node;  // the same once more
    if (!losses_.empty() && Roll(4) == 0) loss.when = losses_.back().when;  // at once
    if (Roll(3) > 0) {
      losses_.push_back(loss);
      log_ += ToString(loss);
      return;
    }
    const LossAtMessage at{loss, kKinds[Roll(std::size(kKinds))], 1 + static_cast<int>(Roll(12))};
    at_messages_.push_back(at);
    log_ += ToString(loss) + "rather at the arrival " + std::to_string(at.count) + " of a " +
            KindName(at.kind) + "; ";
  }

  void AddSpares() {
    options_.job.mutable_recovery()->set_spare_workers(1);
    AddNode({Role::kWorker, -1}, undisturbed_.begun, options_);
    has_spare_ = true;
    log_ += "a spare worker; ";
  }

  void DrawSlowMachine() {
    NicSpec& nic = options_.layout.machines[Roll(options_.layout.machines.size())];
    nic.goodput_bytes_per_second /= 20;
    log_ += "a slow machine; ";
  }

  SimulatedClusterOptions Prepared() {
    SimulatedClusterOptions options = options_;
    options.network.processing = [this](const Envelope& envelope) {
      OnArrival(envelope);
      return Duration::zero();
    };
    if (network_ == Network::kGood) return options;
    options.network.seed = plan_seed_;
    options.network.faults = {.drop = 1};
    if (network_ == Network::kLate) {
      options.network.faults = {
          .duplicate = 0.1, .delay = 0.3, .max_delay = std::chrono::milliseconds(20)};
    }
    if (network_ == Network::kLossy) options.network.faults = {.drop = 0.01, .duplicate = 0.1};
    options.network.fault_filter = [this](const Envelope& envelope) { return IsFaulty(envelope); };
    return options;
  }

  bool IsFaulty(const Envelope& envelope) const {
    const Time now = job_->cluster().runtime().now();
    if (now < network_from_ || now > network_until_) return false;
    if (network_ == Network::kCutOneWay) return envelope.from.node == cut_;
    if (network_ == Network::kCut) return envelope.from.node == cut_ || envelope.to.node == cut_;
    return IsData(envelope);
  }

  void OnArrival(const Envelope& envelope) {
    for (LossAtMessage& at : at_messages_) {
      if (at.kind != envelope.kind || --at.count != 0) continue;
      const Time now = job_->cluster().runtime().now();
      Loss loss = at.loss;
      loss.when = now;
      Lose(loss, *job_);
    }
  }

  std::vector<Loss> AllLosses() const {
    std::vector<Loss> losses = losses_;
    for (const LossAtMessage& at : at_messages_) losses.push_back(at.loss);
    // Who is cut off is lost to the others.
    if (network_ != Network::kGood) losses.push_back({.node = cut_});
    return losses;
  }

  void Check(const SimulatedCluster& cluster) const {
    const std::vector<Loss> losses = AllLosses();
    for (size_t i = 0; i < cluster.nodes(); ++i) {
      const NodeRecord& node = cluster.node(i);
      if (node.killed) continue;
      ASSERT_TRUE(node.end) << node.id.ToString() << " has not ended";
      const int code = node.end->exit_code();
      EXPECT_TRUE(code == 0 || MayBeAlone(node, losses))
          << node.id.ToString() << ": " << node.end->reason();
    }
    const std::optional<wire::End>& end = cluster.node(kTheScheduler).end;
    ASSERT_TRUE(end);
    ASSERT_EQ(end->exit_code(), 0) << end->reason();
    for (const NodeSpec& spec : options_.layout.nodes) {
      const NodeRecord& node = cluster.node(spec.id);
      if (spec.id.role != Role::kWorker || node.killed || node.epoch == 0) continue;
      if (node.end->exit_code() == 0) CheckParameters(cluster, spec.id.rank);
    }
  }

  // Who was cut off may not have heard of the end, who was started after it finds nobody, the last
  // scheduler may not have heard of a spare when it ended, and a spare that is there before a
  // worker has its place, for which that asks until its deadline.
  bool MayBeAlone(const NodeRecord& node, const std::vector<Loss>& losses) const {
    const int code = node.end->exit_code();
    const bool alone = code == static_cast<int>(ExitCode::kDeadlineExceeded);
    const bool left = code == static_cast<int>(ExitCode::kPeerLost);
    const bool refused = code == static_cast<int>(ExitCode::kRefused);
    const auto lost = [&losses](Role role) {
      return std::ranges::any_of(losses,
                                 [role](const Loss& loss) { return loss.node.role == role; });
    };
    const bool has_no_place = node.epoch == 0 && has_spare_ && node.id.role == Role::kWorker;
    if (has_no_place && (alone || refused)) return true;
    if (node.epoch == 0 && lost(Role::kScheduler)) return alone || left;
    return lost(node.id.role) && (alone || (left && network_ != Network::kGood));
  }

  void CheckParameters(const SimulatedCluster& cluster, int asked) const {
    if (cluster.context(asked) == nullptr) return;  // it was not needed
    const Parameters found = ParametersOf(cluster, asked);
    if (!changes_plan_) {
      EXPECT_EQ(found, undisturbed_.parameters) << "worker " << asked;
      return;
    }
    // Another plan takes its sums in another order.
    const int workers = options_.job.cluster().workers();
    EXPECT_LE(Difference(found, TrainSerially(options_.work, workers)),
              RoundingBound(options_.work, workers))
        << "worker " << asked;
  }

  std::mt19937_64 random_;
  uint64_t plan_seed_;
  SimulatedClusterOptions options_;
  Undisturbed undisturbed_;
  Faults faults_;
  std::string log_;
  Network network_ = Network::kGood;
  NodeId cut_;
  Time network_from_{};
  Time network_until_{};
  std::vector<Loss> losses_;
  std::vector<LossAtMessage> at_messages_;
  bool has_spare_ = false;
  bool changes_plan_ = false;
  WatchedJob* job_ = nullptr;
};

// How many recoveries there were.
int TrySeed(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  return MatrixCase(seed).Run();
}

void TryMatrix(uint64_t begin, uint64_t end) {
  int recoveries = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    recoveries += TrySeed(seed);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(recoveries, static_cast<int>(end - begin) / 2) << "the faults hit nothing";
}

TEST(FaultMatrixTest, EndsAsUndisturbed) { TryMatrix(0, kQuickSeeds); }

TEST(FaultMatrixTest, WhatHasFailedOnce) {
  const uint64_t seeds[] = {
      9568,  22001, 67944,         // a spare was there before a slow worker
      11309, 30246, 54584, 94632,  // lanes told only a scheduler that died that they stall
      48932, 57972,  // an iteration done while a plan change was agreed on was not counted
      52796,         // who came for one that had died while nodes gathered was refused
  };
  for (const uint64_t seed : seeds) TrySeed(seed);
}

class SlowFaultMatrixTest : public testing::TestWithParam<int> {};

TEST_P(SlowFaultMatrixTest, EndsAsUndisturbed) {
  constexpr uint64_t kSize = kSeeds / kShards;
  const uint64_t begin = static_cast<uint64_t>(GetParam()) * kSize;
  TryMatrix(std::max(begin, kQuickSeeds), begin + kSize);
}

INSTANTIATE_TEST_SUITE_P(Shard, SlowFaultMatrixTest, testing::Range(0, kShards));

}  // namespace
}  // namespace poseidon
