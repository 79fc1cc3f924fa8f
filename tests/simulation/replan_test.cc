// Measured times lead to a better plan, under which the job goes on.
#include "planner/replan.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/steady_now.h"
#include "planner/job_plan.h"
#include "planner/predictor.h"
#include "proto/plan_members.h"
#include "simulation/background_replan.h"
#include "simulation/plan_trial.h"
#include "tests/simulation/training_case.h"
#include "tests/unit/log_lines.h"

namespace poseidon {
namespace {

// Eight layers, half of them inner products, whose declared times are off by any factor from a
// twentieth to twenty.
SimulatedClusterOptions Misjudged(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&random](double least, double most) {
    return std::exp(std::uniform_real_distribution(std::log(least), std::log(most))(random));
  };
  std::vector<LayerSpec> layers;
  for (int layer = 0; layer < 4; ++layer) {
    layers.push_back(DenseLayer("conv" + std::to_string(layer), 1000 << 2 * layer));
  }
  for (int layer = 0; layer < 4; ++layer) {
    layers.push_back(InnerProductLayer("fc" + std::to_string(layer), 100, 200 << layer, 16));
  }
  SimulatedClusterOptions options = SmallTraining(4, 4, layers, 30, std::chrono::microseconds(100));
  options.work.arithmetic = {};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const double forward = draw(0.02, 0.5);
    options.work.timeline.steps[layer].forward = Seconds(forward / 1000);
    options.work.timeline.steps[layer].backward = Seconds(forward / 500);
    LayerSpec& declared = *options.work.model.mutable_layers(static_cast<int>(layer));
    declared.set_forward_ms(forward * draw(0.05, 20));
    declared.set_backward_ms(2 * forward * draw(0.05, 20));
  }
  options.job.mutable_communication()->set_policy(Communication::TIME);
  options.job.mutable_cluster()->mutable_network()->set_bandwidth("2Gbps");
  NicSpec nic;
  nic.goodput_bytes_per_second = 2e9 / 8 * 0.94;
  nic.latency = std::chrono::microseconds(50);
  options.layout = ColocatedLayout(options.job, nic);
  return options;
}

double MeanSeconds(const TrainerRecord& trainer, size_t first, size_t last) {
  return ToSeconds(trainer.iterations[last].begin - trainer.iterations[first].begin) /
         static_cast<double>(last - first);
}

TEST(ReplanTest, GoesOverToPlansThatAreMuchBetterAndToNoOthers) {
  int better = 0;
  int stayed = 0;
  double seconds_before = 0;
  double seconds_after = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = Misjudged(seed);
    std::optional<Replanned> replanned;
    options.replan = [&](const wire::PlanAndModel& current, const wire::LayerTimes& times) {
      replanned = Replan(options.job, current, times, 1);
      return replanned->plan;
    };
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    ASSERT_TRUE(replanned);
    const wire::LayerTimes& times = *cluster.scheduler().times;
    for (int layer = 0; layer < options.work.model.layers_size(); ++layer) {
      const ComputeStep& step = options.work.timeline.steps[layer];
      EXPECT_NEAR(times.forward_ms(layer), 1000 * ToSeconds(step.forward), 1e-5);
      EXPECT_NEAR(times.backward_ms(layer), 1000 * ToSeconds(step.backward), 1e-5);
    }
    const Plan& plan = cluster.scheduler().plan->plan();
    ASSERT_EQ(plan.number(), replanned->plan ? 1 : 0) << replanned->why;
    if (!replanned->plan) {
      ++stayed;
      continue;
    }
    ++better;
    EXPECT_THAT(replanned->why, testing::HasSubstr("going over to it"));
    // From the thirteenth iteration on; two on both sides are not in a steady state.
    ASSERT_GE(plan.start_iteration(), 13);
    ASSERT_LE(plan.start_iteration(), 16);
    const TrainerRecord& trainer = cluster.trainer(0);
    const double before = MeanSeconds(trainer, 2, 12);
    const double after = MeanSeconds(trainer, plan.start_iteration() + 2, 29);
    // Predictions may be off by about as much as a switch is worth.
    EXPECT_LT(after, 1.05 * before) << replanned->why;
    seconds_before += before;
    seconds_after += after;
  }
  EXPECT_LT(seconds_after, 0.95 * seconds_before);
  EXPECT_GE(better, 2);
  EXPECT_GE(stayed, 2);
}

TEST(ReplanTest, RightTimesChangeNothing) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const SimulatedClusterOptions options = Misjudged(seed);
    const InformationBook book(options.work.model, 4, 4);
    wire::PlanAndModel current;
    *current.mutable_model() = options.work.model;
    *current.mutable_plan() = PlanJob(book, options.job);
    wire::LayerTimes same;
    for (const LayerSpec& layer : options.work.model.layers()) {
      same.add_forward_ms(layer.forward_ms());
      same.add_backward_ms(layer.backward_ms());
    }
    EXPECT_FALSE(Replan(options.job, current, same, 1).plan);
  }
}

// Of four workers the second has been lost, and of those that are left the last computes for three
// times as long, which is known: the mean of what they have measured is 5/3 of what layers take.
TEST(ReplanTest, WhatIsKnownOfMachinesIsNotTakenForTheLayers) {
  const SimulatedClusterOptions options = Misjudged(0);
  Job job = options.job;
  Deviation& deviation = *job.mutable_cluster()->add_deviation();
  deviation.set_worker(3);
  deviation.set_compute_factor(3);
  Job left = job;
  left.mutable_cluster()->set_workers(3);
  left.mutable_cluster()->mutable_deviation(0)->set_worker(2);
  wire::PlanAndModel current;
  *current.mutable_model() = options.work.model;
  *current.mutable_plan() = PlanJob(InformationBook(options.work.model, left.cluster()), left);
  SetMembers({0, 2, 3}, {0, 1, 2, 3}, *current.mutable_plan());
  wire::LayerTimes measured;
  double milliseconds = 0;
  for (const LayerSpec& layer : options.work.model.layers()) {
    measured.add_forward_ms(layer.forward_ms() * 5 / 3);
    measured.add_backward_ms(layer.backward_ms() * 5 / 3);
    milliseconds += layer.forward_ms() + layer.backward_ms();
  }
  const Replanned replanned = Replan(job, current, measured, MeanComputeFactor(job, current));
  EXPECT_FALSE(replanned.plan) << replanned.why;
  EXPECT_NEAR(replanned.current.compute_ms(), 3 * milliseconds, 1e-3 * milliseconds);
}

// Where plans can be tried both are, and the trials decide: with times of 10 and 9 ms another plan
// is gone over to, whatever is predicted, and with 10 and 9.9 not.
TEST(ReplanTest, TrialsDecide) {
  const SimulatedClusterOptions options = Misjudged(0);
  const InformationBook book(options.work.model, 4, 4);
  Job servers = options.job;
  servers.mutable_communication()->set_policy(Communication::ALL_PS);
  wire::PlanAndModel current;
  *current.mutable_model() = options.work.model;
  *current.mutable_plan() = PlanJob(book, servers);
  current.mutable_plan()->set_number(5);
  current.mutable_plan()->set_simulated_ms(77);
  wire::LayerTimes same;
  for (const LayerSpec& layer : options.work.model.layers()) {
    same.add_forward_ms(layer.forward_ms());
    same.add_backward_ms(layer.backward_ms());
  }
  for (const double other : {0.009, 0.0099}) {
    const auto trial = [&](const Plan& plan, const Job&, const ModelSpec&,
                           TrialLength length) -> std::optional<double> {
      EXPECT_EQ(plan.number(), 0);
      const bool is_current = google::protobuf::util::MessageDifferencer::Equivalent(
          plan.buckets(0), current.plan().buckets(0));
      // What a long trial shows of one plan only does not count.
      if (length == TrialLength::kLong) return is_current ? std::optional(1.0) : std::nullopt;
      return is_current ? 0.010 : other;
    };
    const Replanned replanned = Replan(options.job, current, same, 1, trial);
    EXPECT_EQ(replanned.plan.has_value(), other == 0.009) << replanned.why;
    EXPECT_EQ(replanned.current.simulated_ms(), 10);
    EXPECT_THAT(replanned.why, testing::HasSubstr("to take 10.00 ms (before: 77.00 ms)"));
  }
}

class BackgroundReplanTest : public testing::Test {
 protected:
  BackgroundReplanTest() {
    *current_.mutable_model() = options_.work.model;
    *current_.mutable_plan() = PlanJob(InformationBook(options_.work.model, 4, 4), options_.job);
    for (const ComputeStep& step : options_.work.timeline.steps) {
      measured_.add_forward_ms(1000 * ToSeconds(step.forward));
      measured_.add_backward_ms(1000 * ToSeconds(step.backward));
    }
  }

  ~BackgroundReplanTest() override { FLAGS_minloglevel = silent_; }

  static std::optional<Replanned> Await(BackgroundReplan& replan) {
    const Time deadline = SteadyNow() + std::chrono::minutes(1);
    while (SteadyNow() < deadline) {
      if (std::optional<Replanned> replanned = replan.Take()) return replanned;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::nullopt;
  }

  // Searches that fail are told of in the log, of which other tests show nothing.
  const int silent_ = std::exchange(FLAGS_minloglevel, google::GLOG_WARNING);
  const SimulatedClusterOptions options_ = Misjudged(1);
  wire::PlanAndModel current_;
  wire::LayerTimes measured_;
  BackgroundReplan replan_;
};

TEST_F(BackgroundReplanTest, ComesToWhatReplanComesTo) {
  EXPECT_FALSE(replan_.Take());
  replan_.Start(options_.job, current_, measured_);
  const std::optional<Replanned> replanned = Await(replan_);
  ASSERT_TRUE(replanned);
  EXPECT_EQ(replanned->why, Replan(options_.job, current_, measured_, 1, TryPlan).why);
  EXPECT_FALSE(replan_.Take());
}

TEST_F(BackgroundReplanTest, TheNewestIsWhatCounts) {
  wire::LayerTimes other = measured_;
  for (double& time : *other.mutable_backward_ms()) time *= 7;
  replan_.Start(options_.job, current_, other);
  replan_.Start(options_.job, current_, measured_);
  const std::optional<Replanned> replanned = Await(replan_);
  ASSERT_TRUE(replanned);
  EXPECT_EQ(replanned->why, Replan(options_.job, current_, measured_, 1, TryPlan).why);
  // One that nobody takes is left.
  replan_.Start(options_.job, current_, other);
}

// Somebody was lost, has come, or has another part of the batch before there was an answer.
TEST_F(BackgroundReplanTest, ASearchBeginsAnewUnderAPlanOfAnotherLayout) {
  replan_.Start(options_.job, current_, measured_);
  EXPECT_FALSE(replan_.PlanChanged(current_));
  current_.mutable_plan()->set_layout(1);
  EXPECT_FALSE(replan_.PlanChanged(current_)) << "there was none yet";
  const std::optional<Replanned> replanned = Await(replan_);
  ASSERT_TRUE(replanned);
  EXPECT_EQ(replanned->current.layout(), 1);
}

TEST_F(BackgroundReplanTest, APlanThatNobodyHasGoneOverToIsSearchedForAgain) {
  Job small_chunks = options_.job;
  small_chunks.mutable_communication()->set_policy(Communication::ALL_PS);
  small_chunks.mutable_communication()->set_kv_pair_bytes(4096);
  const InformationBook book(options_.work.model, 4, 4);
  *current_.mutable_plan() = PlanJob(book, small_chunks);
  replan_.Start(options_.job, current_, measured_);
  std::optional<Replanned> replanned = Await(replan_);
  ASSERT_TRUE(replanned && replanned->plan);
  EXPECT_FALSE(replan_.searching());
  // Of the same layout, after a loss.
  current_.mutable_plan()->set_number(1);
  EXPECT_TRUE(replan_.PlanChanged(current_));
  replanned = Await(replan_);
  ASSERT_TRUE(replanned && replanned->plan);
  wire::PlanAndModel next = *replanned->plan;
  next.mutable_plan()->set_number(2);
  next.mutable_plan()->set_layout(2);
  EXPECT_FALSE(replan_.PlanChanged(next));
  EXPECT_FALSE(replan_.searching());
  next.mutable_plan()->set_layout(3);
  replan_.PlanChanged(next);
  EXPECT_FALSE(replan_.searching()) << "though it was gone over to";
}

TEST_F(BackgroundReplanTest, WhereNoOtherPlanPaysOneForFewerWorkersMay) {
  bool stays = false;
  for (int tries = 0; tries < 5 && !stays; ++tries) {
    replan_.Start(options_.job, current_, measured_);
    const std::optional<Replanned> replanned = Await(replan_);
    ASSERT_TRUE(replanned);
    stays = !replanned->plan;
    if (!stays) current_ = *replanned->plan;
  }
  ASSERT_TRUE(stays);
  current_.mutable_plan()->set_layout(1);
  replan_.PlanChanged(current_);
  EXPECT_FALSE(replan_.searching()) << "for other parts of the batch";
  Job job = options_.job;
  job.mutable_cluster()->set_workers(3);
  *current_.mutable_plan() = PlanJob(InformationBook(current_.model(), 3, 4), job);
  replan_.PlanChanged(current_);
  EXPECT_TRUE(replan_.searching());
}

// Of four workers the last has computed for three times as long, which was known: the mean of what
// they have measured is 3/2 of what layers take, also after it is lost.
TEST_F(BackgroundReplanTest, TimesStayThoseOfTheWorkersThatHaveMeasured) {
  Job job = options_.job;
  Deviation& deviation = *job.mutable_cluster()->add_deviation();
  deviation.set_worker(3);
  deviation.set_compute_factor(3);
  double milliseconds = 0;
  for (int layer = 0; layer < measured_.forward_ms_size(); ++layer) {
    milliseconds += measured_.forward_ms(layer) + measured_.backward_ms(layer);
    measured_.set_forward_ms(layer, measured_.forward_ms(layer) * 3 / 2);
    measured_.set_backward_ms(layer, measured_.backward_ms(layer) * 3 / 2);
  }
  replan_.Start(job, current_, measured_);
  Job left = options_.job;
  left.mutable_cluster()->set_workers(3);
  *current_.mutable_plan() = PlanJob(InformationBook(current_.model(), 3, 4), left);
  current_.mutable_plan()->set_layout(1);
  replan_.PlanChanged(current_);
  const std::optional<Replanned> replanned = Await(replan_);
  ASSERT_TRUE(replanned);
  EXPECT_NEAR(replanned->current.compute_ms(), milliseconds, 1e-3 * milliseconds);
}

// The scheduler, which asks, must not stand still for the second or two that the other takes to
// end.
TEST_F(BackgroundReplanTest, WhatIsGivenUpIsNotWaitedFor) {
  const Time begin = SteadyNow();
  // Few, for those that are given up finish their trial: twenty of them, of two threads each, took
  // the cores of a busy machine from this thread, too.
  constexpr int kTimes = 5;
  for (int i = 0; i < kTimes; ++i) replan_.Start(options_.job, current_, measured_);
  const Duration started = SteadyNow() - begin;
  ASSERT_TRUE(Await(replan_));
  const Duration planned = SteadyNow() - begin;
  EXPECT_LT(started, planned / 4);
}

// No trial is asked for that could end it. Processor time, as others may have the cores meanwhile.
TEST_F(BackgroundReplanTest, ASearchEndsWhenNobodyWantsItsPlan) {
  std::stop_source stop;
  stop.request_stop();
  const std::clock_t begin = std::clock();
  EXPECT_THAT([&] { Replan(options_.job, current_, measured_, 1, {}, stop.get_token()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("nobody waits for the plan")));
  const std::clock_t stopped = std::clock();
  Replan(options_.job, current_, measured_, 1);
  EXPECT_LT(stopped - begin, (std::clock() - stopped) / 2);
}

TEST_F(BackgroundReplanTest, ASearchThatFailsMakesNoPlan) {
  const LogLines log;
  const auto told = [&] {
    return std::ranges::count_if(log.lines(), [](const std::string& line) {
      return line.starts_with("training keeps its plan, as the search for a better one has failed");
    });
  };
  current_.mutable_model()->clear_layers();
  measured_.Clear();
  replan_.Start(options_.job, current_, measured_);
  const Time deadline = SteadyNow() + std::chrono::minutes(1);
  while (told() == 0 && SteadyNow() < deadline) {
    EXPECT_FALSE(replan_.Take());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(told(), 1);
}

// That limit is none for root.
TEST_F(BackgroundReplanTest, WithoutAThreadThereIsNoSearch) {
  constexpr uid_t kNobody = 65534;
  const auto search = [this] {
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(1);
    const rlimit none{};
    setrlimit(RLIMIT_NPROC, &none);
    replan_.Start(options_.job, current_, measured_);
    _exit(replan_.Take() ? 1 : 0);
  };
  EXPECT_EXIT(search(), testing::ExitedWithCode(0), "the search for a better one has failed");
}

}  // namespace
}  // namespace poseidon
