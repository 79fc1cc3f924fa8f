// Draws of losses, and what restarts from snapshots cost, against what is published and against
// drawn failures.
#include "simulation/failures/failure_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "simulation/failures/loss_draws.h"
#include "simulation/failures/snapshot_restarts.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr double kMinute = 60;

std::vector<NodeId> Workers(int count) {
  std::vector<NodeId> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back({Role::kWorker, i});
  return nodes;
}

TEST(LossDrawsTest, NodesFailAtExponentialIntervals) {
  constexpr int kNodes = 10;
  constexpr int kLosses = 20000;
  constexpr double kMtbf = 100;
  LossDraws draws(kMtbf, 1, Workers(kNodes));
  double before = 0;
  double sum = 0;
  double squares = 0;
  std::vector<int> losses(kNodes);
  for (int i = 0; i < kLosses; ++i) {
    const NodeLoss loss = draws.Next();
    ASSERT_GE(loss.when, before);
    const double gap = loss.when - before;
    sum += gap;
    squares += gap * gap;
    before = loss.when;
    ++losses[loss.node.rank];
    draws.Replace(loss.node, loss.when);
  }
  // The mean of exponential intervals is their deviation, too; that of n is within 5 / sqrt(n).
  const double bound = 5 / std::sqrt(kLosses);
  const double mean = sum / kLosses;
  EXPECT_NEAR(mean / (kMtbf / kNodes), 1, bound);
  EXPECT_NEAR(std::sqrt(squares / kLosses - mean * mean) / mean, 1, 2 * bound);
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  EXPECT_GT(*least, kLosses / kNodes * 0.9);
  EXPECT_LT(*most, kLosses / kNodes * 1.1);
}

TEST(LossDrawsTest, TheSameSeedGivesTheSameLossesInProportion) {
  LossDraws draws(1, 42, Workers(5));
  LossDraws rarer(1000, 42, Workers(5));
  for (int i = 0; i < 100; ++i) {
    const NodeLoss loss = draws.Next();
    const NodeLoss other = rarer.Next();
    EXPECT_EQ(loss.node, other.node);
    EXPECT_NEAR(1000 * loss.when / other.when, 1, 1e-9);
    draws.Replace(loss.node, loss.when);
    rarer.Replace(other.node, other.when);
  }
  std::set<double> first;
  for (uint64_t seed = 0; seed < 10; ++seed)
    first.insert(LossDraws(1, seed, Workers(5)).Next().when);
  EXPECT_EQ(first.size(), 10U);
}

// As the captions of figures 3 to 5 of Daly's paper have it: a snapshot takes 5 minutes.
TEST(SnapshotRestartsTest, TheBestIntervalIsDalys) {
  const auto best = [](double mtbf_minutes) {
    return BestInterval({mtbf_minutes * kMinute, 5 * kMinute, 10 * kMinute}) / kMinute;
  };
  EXPECT_NEAR(best(24 * 60), 117, 0.5);
  EXPECT_NEAR(best(6 * 60), 57, 0.5);
  EXPECT_NEAR(best(15), 9.1, 0.05);
  EXPECT_EQ(best(2), 2);  // snapshots take longer than that
}

TEST(SnapshotRestartsTest, NoIntervalIsMuchBetterThanTheBest) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    SnapshotRestarts restarts;
    restarts.mtbf = std::exp(static_cast<double>(random() % 1000) / 100);  // 1 to 22,000
    restarts.write = restarts.mtbf * static_cast<double>(1 + random() % 1000) / 1000;
    restarts.restart = restarts.mtbf * static_cast<double>(random() % 1000) / 500;
    const double best = GoodputOfRestarts(restarts, BestInterval(restarts));
    EXPECT_GT(best, 0);
    EXPECT_LT(best, 1);
    for (int power = -24; power <= 24; ++power) {
      const double factor = std::pow(1.1, power);  // a tenth to ten
      EXPECT_LE(GoodputOfRestarts(restarts, factor * BestInterval(restarts)), best * 1.002);
    }
  }
}

// Trains interval after interval, each with a snapshot behind it, and fails at exponential times.
double DrawnGoodput(const SnapshotRestarts& restarts, double interval, uint64_t seed) {
  constexpr int kIntervals = 20000;
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> life(1 / restarts.mtbf);
  double now = 0;
  double failure = life(random);
  for (int done = 0; done < kIntervals;) {
    if (failure >= now + interval + restarts.write) {
      now += interval + restarts.write;
      ++done;
      continue;
    }
    // What a restart is interrupted by begins it again.
    do {
      now = failure;
      failure = now + life(random);
    } while (failure < now + restarts.restart);
    now += restarts.restart;
  }
  return kIntervals * interval / now;
}

TEST(SnapshotRestartsTest, GoodputIsThatOfDrawnFailures) {
  for (const double mtbf : {20.0, 100.0, 1000.0}) {
    for (const double interval : {10.0, 50.0}) {
      const SnapshotRestarts restarts{mtbf, 2, 7};
      const double drawn = DrawnGoodput(restarts, interval, 1);
      EXPECT_NEAR(GoodputOfRestarts(restarts, interval) / drawn, 1, 0.05)
          << mtbf << " " << interval;
    }
  }
  EXPECT_EQ(GoodputOfRestarts({1, 0, 0}, 1e6), 0);
  EXPECT_NEAR(GoodputOfRestarts({1e12, 1, 100}, 99), 0.99, 1e-6);
}

std::string RefusalOf(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(FailureAnswerTest, ReadsWhatFails) {
  const FailureScenario scenario = ParseFailures("--failures", "720h:1.5min");
  EXPECT_EQ(scenario.mtbf, 720 * 3600);
  EXPECT_EQ(scenario.replacement, 90);
  const auto refusal = [](const std::string& text) {
    return RefusalOf([&] { ParseFailures("--failures", text); });
  };
  EXPECT_THAT(refusal("720h"), HasSubstr("it must be MTBF:DURATION"));
  EXPECT_THAT(refusal(""), HasSubstr("it must be MTBF:DURATION"));
  EXPECT_THAT(refusal("0h:1min"), HasSubstr("until a node fails is \"0h\"; it must be above 0"));
  EXPECT_THAT(refusal("1h:0s"),
              HasSubstr("another process is there is \"0s\"; it must be above 0"));
  EXPECT_THAT(refusal("-1h:1s"), HasSubstr("--failures, the time until a node fails: "));
  EXPECT_THAT(refusal("1h:-1s"),
              HasSubstr("--failures, the time until another process is there: "));
  for (const char* nonsense :
       {":", "1h:", ":1s", "1:1", "1 day:1s", "1h:1s:1s", "oo:1s", "nan:1s"}) {
    EXPECT_THAT(refusal(nonsense), HasSubstr("--failures, ")) << nonsense;
  }
}

TEST(FailureAnswerTest, ReadsWhatBecomesOfAJob) {
  EXPECT_EQ(ParseRecoveryChoice("replace").mode, Recovery::REPLACE);
  EXPECT_EQ(ParseRecoveryChoice("shrink").mode, Recovery::SHRINK);
  EXPECT_EQ(ParseRecoveryChoice("snapshot").mode, Recovery::NONE);
  EXPECT_FALSE(ParseRecoveryChoice("snapshot").interval);
  EXPECT_EQ(ParseRecoveryChoice("snapshot:30min").interval, 1800);
  const auto refusal = [](const std::string& text) {
    return RefusalOf([&] { ParseRecoveryChoice(text); });
  };
  for (const char* nonsense : {"", "REPLACE", "replaced", "none", "snapshots:1h", "replace:1h"}) {
    EXPECT_THAT(refusal(nonsense),
                HasSubstr("it must be one of replace, shrink, snapshot:INTERVAL"))
        << nonsense;
  }
  EXPECT_THAT(refusal("snapshot:0min"), HasSubstr("it must be above 0"));
  EXPECT_THAT(refusal("snapshot:"), HasSubstr("the time between snapshots: "));
  EXPECT_THAT(refusal("snapshot:-5min"), HasSubstr("the time between snapshots: "));
}

TEST(FailureAnswerTest, SnapshotsAreOfParametersAndOptimizerState) {
  ModelSpec model;
  model.add_layers()->add_blobs()->add_shape(125'000'000);  // 0.5 GB
  EXPECT_NEAR(SnapshotSeconds(model), 1, 1e-9);
  model.mutable_update_rule()->set_type("Adam");
  model.mutable_update_rule()->set_lr_policy("fixed");
  model.mutable_update_rule()->set_base_lr(1);
  EXPECT_NEAR(SnapshotSeconds(model), 1.5, 1e-9);
}

TEST(FailureAnswerTest, ARestartIsAllThatComesBeforeTraining) {
  Job job;
  job.mutable_cluster()->set_workers(6);
  job.mutable_cluster()->set_servers(4);
  job.mutable_communication()->set_heartbeat_deadline_seconds(5);
  const FailureScenario scenario{.mtbf = 36000, .replacement = 60};
  SimulatedTraining training;
  training.start = 3;
  training.iteration = 0.25;
  const RestartAnswer answer = AnswerOfRestarts(job, {}, scenario, training, 600, 20);
  EXPECT_EQ(answer.restart, 5 + 60 + 3 + 20);
  EXPECT_EQ(answer.write, 20);
  EXPECT_FALSE(answer.best);
  EXPECT_EQ(answer.goodput, GoodputOfRestarts({3600, 20, 88}, 600));
  EXPECT_EQ(answer.iteration, 0.25);
  const RestartAnswer best = AnswerOfRestarts(job, {}, scenario, training, {}, 20);
  EXPECT_TRUE(best.best);
  EXPECT_EQ(best.interval, BestInterval({3600, 20, 88}));
}

}  // namespace
}  // namespace poseidon
