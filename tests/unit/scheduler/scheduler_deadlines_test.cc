// What the scheduler does when a node of a job under way is lost, or it is itself, and how long it
// waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "tests/unit/scheduler/scheduler_testing.h"

namespace poseidon {
namespace {

class SchedulerDeadlinesTest : public SchedulerTest {};

// Worker 0 may be in the midst of a test phase, which the stall deadline alone is to cover.
TEST_F(SchedulerDeadlinesTest, AProgramThatTestsHasAsLongAsATestMayTake) {
  BeginTraining();
  const int plan = plan_.plan().number();
  FallSilent(kWorkers[1]);
  Hold();
  Register(kWorkers[1], 10);
  ASSERT_EQ(plan_.plan().number(), plan + 1);
  EXPECT_EQ(deadline(), kStall);
}

// A lane answers a hold at once, but not while its program loads what a plan starts with.
TEST_F(SchedulerDeadlinesTest, AHoldAmongProgramsThatLoadWaitsForThem) {
  BeginTraining();
  FallSilent(kWorkers[1]);
  ASSERT_TRUE(deadline());
  EXPECT_LT(*deadline(), 60);
  Hold();
  Register(kWorkers[1], 10);
  FallSilent(kWorkers[1]);
  EXPECT_EQ(deadline(), kStall);
}

// Its report may be on its way when another process takes the rank.
TEST_F(SchedulerDeadlinesTest, TheMonitorOfAnEarlierViewLosesNobody) {
  BeginTraining();
  const uint64_t earlier = view_.epoch();
  FallSilent(kWorkers[1]);
  Hold();
  Register(kWorkers[1], 10);
  ASSERT_NE(view_.epoch(), earlier);
  FallSilent(kWorkers[1], earlier);
  EXPECT_TRUE(outbox_.messages.empty());
  FallSilent(kWorkers[1]);
  EXPECT_FALSE(outbox_.messages.empty());
}

// A worker that waits may get what it waits for when the slowest sends its last gradient, and test
// or write a snapshot then: what it has said before is of no account.
TEST_F(SchedulerDeadlinesTest, TheLastExchangeStallsWhereAllWorkersWaitForIt) {
  options_ = TwoWorkers(Recovery::NONE);
  StartScheduler();
  BeginTraining();
  wire::Stalled stalled;
  stalled.set_last_exchange(true);
  stalled.add_missing()->set_role(static_cast<uint32_t>(Role::kServer));
  const auto wait = [&](const NodeId& worker, double seconds) {
    outbox_.now += Seconds(seconds);
    Tell(worker, MessageKind::kStalled, stalled);
    return !outbox_.timers.empty();
  };
  for (int scan = 0; scan < 100; ++scan) EXPECT_FALSE(wait(kWorkers[0], 0.1 * kStall));
  EXPECT_FALSE(wait(kWorkers[1], 0.3 * kStall));
  EXPECT_FALSE(wait(kWorkers[1], 0.1 * kStall));
  EXPECT_TRUE(wait(kWorkers[0], 0.05 * kStall));
  ASSERT_EQ(outbox_.timers.size(), 1u);
  outbox_.Clear();
  scheduler_->OnTimer(kStallsCollected, outbox_);
  TakeSent();
  EXPECT_THAT(TakeEnd(), testing::AllOf(testing::StartsWith("4 worker 0"),
                                        testing::HasSubstr("from server 0")));
}

// The time until the scheduler looks again, as it has just said, and what it tells then.
class ProgressTest : public SchedulerTest {
 protected:
  ProgressTest() : SchedulerTest(TwoWorkers(Recovery::NONE)) {
    BeginTraining();
    next_look_ = TakeLook();
  }

  std::optional<Duration> TakeLook() const {
    std::optional<Duration> delay;
    for (const Outbox::Timer& timer : outbox_.timers) {
      if (timer.id == kLookForProgress) delay = timer.delay;
    }
    return delay;
  }

  // What it tells in so many seconds, each with the seconds since now; workers tell of an iteration
  // or, from `quiet_from` on, no longer do.
  std::string NoticesIn(double seconds, double quiet_from) {
    const Time begin = outbox_.now;
    const Time end = begin + Seconds(seconds);
    Time look = begin + *next_look_;
    std::string told;
    for (int64_t iteration = 0; outbox_.now < end; ++iteration) {
      const Time at = begin + Seconds(std::min(quiet_from, 70.0 * static_cast<double>(iteration)));
      const bool progresses = at < begin + Seconds(quiet_from) && at < look;
      outbox_.now = progresses ? at : look;
      if (outbox_.now >= end) break;
      if (progresses) {
        wire::Progress progress;
        progress.set_iteration(iteration);
        Tell(kWorkers[iteration % 2], MessageKind::kProgress, progress);
        continue;
      }
      outbox_.Clear();
      scheduler_->OnTimer(kLookForProgress, outbox_);
      TakeSent();
      const std::string notices = Notices();
      if (!notices.empty()) {
        told += std::to_string(static_cast<int>(ToSeconds(outbox_.now - begin))) + ": " + notices;
      }
      next_look_ = TakeLook();
      look = outbox_.now + next_look_.value();
      --iteration;
    }
    return told;
  }

  std::optional<Duration> next_look_;
};

TEST_F(ProgressTest, WorkersThatGetOnAreNoNews) {
  EXPECT_EQ(NoticesIn(/*seconds=*/100 * kStall, /*quiet_from=*/1e9), "");
}

// Nobody waits for anybody, so there is no stall to report.
TEST_F(ProgressTest, AllWorkersThatHangAreNamedEverLessOften) {
  const std::string told = NoticesIn(/*seconds=*/100 * kStall, /*quiet_from=*/1000);
  // The last one was heard after 980 seconds; it looks every sixty.
  EXPECT_THAT(told, testing::StartsWith("1620: no worker has ended an iteration for 640 s, "));
  EXPECT_THAT(told, testing::HasSubstr("worker 0 (node, process 0), worker 1 (node, process 0)"));
  EXPECT_THAT(told, testing::HasSubstr("the last iteration that one has ended is 14"));
  EXPECT_EQ(std::ranges::count(told, '\n'), 6) << told;
}

TEST_F(ProgressTest, ASuspendedJobDoesNotHang) {
  outbox_.now += Seconds(100 * kStall);
  EXPECT_EQ(NoticesIn(/*seconds=*/kStall, /*quiet_from=*/0), "");
}

// Its stall is about to end the job, and names who is waited for.
TEST_F(ProgressTest, NobodyIsNamedOnceAWorkerHasWaitedForAnother) {
  wire::Stalled stalled;
  stalled.add_missing()->set_role(static_cast<uint32_t>(Role::kServer));
  Tell(kWorkers[0], MessageKind::kStalled, stalled);
  EXPECT_EQ(NoticesIn(/*seconds=*/10 * kStall, /*quiet_from=*/0), "");
}

// That waits for who computes still.
TEST_F(ProgressTest, WhoWaitsForTheLastExchangeIsNotNamed) {
  wire::Stalled stalled;
  stalled.set_last_exchange(true);
  outbox_.now += Seconds(kStall);
  for (int scan = 0; scan < 3; ++scan) {
    outbox_.Clear();
    scheduler_->OnTimer(kLookForProgress, outbox_);
    Tell(kWorkers[0], MessageKind::kStalled, stalled);
    outbox_.now += Seconds(0.1 * kStall);
  }
  std::string told;
  for (int look = 0; look < 20 && told.empty(); ++look) {
    Tell(kWorkers[0], MessageKind::kStalled, stalled);
    outbox_.now += Seconds(0.2 * kStall);
    outbox_.Clear();
    scheduler_->OnTimer(kLookForProgress, outbox_);
    told = Notices();
  }
  EXPECT_THAT(told, testing::HasSubstr("may hang: worker 1 (node, process 0)\n")) << told;
}

// The phase's deadline names it.
TEST_F(ProgressTest, NobodyIsNamedOnceAWorkerHasFinished) {
  Tell(kWorkers[0], MessageKind::kFinished, wire::WorkerReport());
  EXPECT_EQ(NoticesIn(/*seconds=*/10 * kStall, /*quiet_from=*/0), "");
}

// A worker tells of a round, in which each fragment has the deadline of as many steps.
TEST_F(SchedulerDeadlinesTest, ARoundOfFragmentsMayTakeAsLongAsItsExchanges) {
  options_ = TwoWorkers(Recovery::NONE);
  Communication& communication = *options_.job.mutable_communication();
  communication.set_local_steps(12);
  communication.set_fragments(4);
  StartScheduler();
  BeginTraining();
  ASSERT_TRUE(HasSent(MessageKind::kStart));
  std::optional<Duration> look;
  for (const Outbox::Timer& timer : outbox_.timers) {
    if (timer.id == kLookForProgress) look = timer.delay;
  }
  ASSERT_TRUE(look);
  EXPECT_EQ(10 * ToSeconds(*look), 2 * 12 * kStall);
}

// Such a machine's nodes find the scheduler, and all seems well until others look for them.
TEST_F(SchedulerDeadlinesTest, NodesThatOthersDoNotReachAreNamedAtTheStartAndInTheEnd) {
  options_ = TwoWorkers(Recovery::NONE);
  StartScheduler();
  Register(kServer, 1, 1, "127.0.0.1");
  Register(kWorkers[0], 2, 1, "127.0.0.1");
  EXPECT_EQ(Notices(), "");
  Register(kWorkers[1], 3);
  const std::string named =
      "nodes on other machines do not reach server 0 (127.0.0.1, process 0), worker 0";
  EXPECT_THAT(Notices(), testing::StartsWith(named));
  DeclareModel();
  outbox_.Clear();
  scheduler_->OnTimer(kPhaseDeadline, outbox_);
  TakeSent();
  EXPECT_THAT(TakeEnd(), testing::AllOf(testing::StartsWith("4 server 0"),
                                        testing::HasSubstr("did not get ready to train"),
                                        testing::HasSubstr(named)));
}

// Between its plan and the start of that the next scheduler is lost, too.
TEST_F(SchedulerDeadlinesTest, GoingBackFromAPauseIsWrittenDown) {
  BeginTraining();
  for (const int64_t iteration : {0, 1, 2, 3}) {
    wire::JournalRecord record;
    record.mutable_iteration()->set_number(iteration);
    journal_.Apply(record);
  }
  Send(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), plan_));
  ASSERT_TRUE(HasSent(MessageKind::kPauseRequest));
  StartScheduler();
  for (const NodeId& worker : kWorkers) Hold(worker, 2);
  ASSERT_EQ(plan_.plan().start_iteration(), 2);
  StartScheduler();
  SayReady();
  EXPECT_EQ(journal_.iterations_done, 2) << "the others are done again";
  EXPECT_TRUE(HasSent(MessageKind::kRecovered));
}

// A job whose plan says how many lanes there are.
class SpareLanesTest : public SchedulerTest {
 protected:
  SpareLanesTest() : SchedulerTest(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options = TwoWorkers(Recovery::REPLACE);
    options.job.mutable_recovery()->set_spare_workers(2);
    options.job.mutable_cluster()->mutable_network();
    options.planner = [](const InformationBook& book, const Job& job) {
      Plan plan = PlanJob(book, job);
      plan.set_lanes(2);
      return plan;
    };
    return options;
  }
};

TEST_F(SpareLanesTest, ASpareOfTooFewLanesDoesNotTakeThePlace) {
  RegisterAll(2);
  constexpr NodeId kAny{Role::kWorker, -1};
  Register(kAny, 10, 1);
  Register(kAny, 11, 2);
  DeclareModel();
  FallSilent(kWorkers[1]);
  Hold();
  EXPECT_TRUE(HasSent(MessageKind::kRefused));
  EXPECT_EQ(journal_.members.at(kWorkers[1]).incarnation, 11u);
}

// Draws what happens to a job of two workers, and counts itself how often each was lost since an
// iteration was done last.
class LossCountTest : public SchedulerTest {
 protected:
  LossCountTest() : SchedulerTest(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options = TwoWorkers(Recovery::REPLACE);
    options.job.mutable_recovery()->set_give_up_after(kGiveUpAfter);
    return options;
  }

  void Begin(unsigned seed) {
    random_.seed(seed);
    journal_ = {};
    journal_.base = options_.epoch;
    StartScheduler();
    BeginTraining();
    losses_.clear();
    next_ = {0, 0};
  }

  int Draw(int choices) { return std::uniform_int_distribution<int>(0, choices - 1)(random_); }
  int64_t start() const { return plan_.plan().start_iteration(); }

  // Its next iteration, if it has the values of the one before, to which both have added.
  void Compute(int worker) {
    if (next_[worker] > next_[1 - worker]) return;
    const int64_t iteration = next_[worker]++;
    wire::Progress progress;
    progress.set_iteration(iteration);
    Tell(kWorkers[worker], MessageKind::kProgress, progress);
    // What is not written down by the next loss is so too late to count.
    if (next_[1 - worker] <= iteration || Draw(2) == 0) return;
    wire::JournalRecord record;
    record.mutable_iteration()->set_number(iteration);
    journal_.Apply(record);
  }

  // A worker and perhaps, before all are ready, those in its place. False: the job has ended.
  bool LoseAndGoOn() {
    const int lost = Draw(2);
    const int left = 1 - lost;
    // All have computed those before the least; who waits may have the values of that or not yet.
    const int64_t least = std::min(next_[0], next_[1]);
    const int64_t late = next_[left] == least ? Draw(2) : 0;
    const int64_t cut = std::max(start(), least - late);
    int in_a_row = 0;
    do {
      FallSilent(kWorkers[lost]);
      ++losses_[kWorkers[lost]];
      ++in_a_row;
      if (cut > start()) losses_ = {{kWorkers[lost], in_a_row}};
      Hold(kWorkers[left], cut);
      Register(kWorkers[lost], ++incarnation_);
      if (end_ || losses_[kWorkers[lost]] > kGiveUpAfter) {
        EXPECT_THAT(TakeEnd(), testing::HasSubstr(std::to_string(losses_[kWorkers[lost]]) +
                                                  " times in a row without an iteration done"));
        return false;
      }
      ExpectSame();
    } while (Draw(3) == 0);
    next_ = {cut, cut};
    SayReady();
    return true;
  }

  // At the iteration to which one has come.
  void ChangePlan() {
    const int64_t at = std::max(next_[0], next_[1]);
    if (at > start()) losses_.clear();
    Send(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), plan_));
    for (const NodeId& worker : kWorkers) Offer(worker, at);
    for (const int worker : {0, 1}) {
      if (next_[worker] < at) Compute(worker);
    }
    const auto number = static_cast<uint32_t>(plan_.plan().number());
    for (const NodeId& worker : kWorkers) {
      Envelope paused;
      paused.kind = MessageKind::kPaused;
      paused.step = number;
      SendAs(worker, paused);
    }
    EXPECT_EQ(start(), at);
    ExpectSame();
    SayReady();
  }

  void ExpectSame() const { EXPECT_EQ(journal_.losses_without_progress, losses_); }

  static constexpr int kGiveUpAfter = 2;

  std::mt19937 random_;
  std::map<NodeId, int> losses_;
  std::array<int64_t, 2> next_{};  // iteration that each worker has not computed yet
  uint64_t incarnation_ = 10;
};

// Whether a plan or an iteration shows that the job has come on, and also where the scheduler that
// counted has died.
TEST_F(LossCountTest, LossesCountAlikeInTheSchedulerAndInItsJournal) {
  for (unsigned seed = 0; seed < 50 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Begin(seed);
    for (int step = 0; step < 60 && !HasFailure(); ++step) {
      const int what = Draw(10);
      if (what < 5) {
        Compute(Draw(2));
      } else if (what < 8) {
        if (!LoseAndGoOn()) break;
      } else if (what < 9) {
        ChangePlan();
      } else {
        StartScheduler();
        SayReady();
      }
    }
  }
}

}  // namespace
}  // namespace poseidon
