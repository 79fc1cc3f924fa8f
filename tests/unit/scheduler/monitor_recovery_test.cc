// What a monitor shows of a job that goes on after a loss, with other workers or from a snapshot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/monitor/metrics_text.h"
#include "tests/unit/scheduler/monitor_status_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class MonitorRecoveryTest : public MonitorStatusTest {};

// It goes on from where the others do, and is not late while nobody can have told.
TEST_F(MonitorRecoveryTest, WhoTakesALostOnesPlaceIsNotBehind) {
  Join();
  Plan(0);
  Enter("training", 105);
  for (int64_t i = 0; i < 1000; ++i) {
    for (const int rank : {0, 1}) tracker_.OnProgress(ProgressOf(rank, i), Seconds(106));
    tracker_.OnIteration(Iteration(i, 0.5, 1, 16), Seconds(106));
  }
  Enter("holding", 130);
  wire::View view;
  *view.add_nodes() = Node(Role::kWorker, 1);
  view.mutable_nodes(0)->set_pid(77);
  tracker_.OnView(view);
  Plan(999);
  wire::Recovered recovered;
  recovered.set_iteration(999);
  *recovered.add_lost() = Node(Role::kWorker, 1);
  Enter("training", 140);
  tracker_.OnRecovered(recovered);
  EXPECT_THAT(States(141), ElementsAre("serving", "training", "training"));
  for (const NodeState& state : NodeStates(tracker_.status(Seconds(141)))) EXPECT_EQ(state.lag, 0);
  // The quicker one has told, and the other may yet.
  tracker_.OnProgress(ProgressOf(1, 999), Seconds(141));
  EXPECT_THAT(States(141), ElementsAre("serving", "training", "training"));
  EXPECT_THAT(States(143), ElementsAre("serving", "late", "training"));
}

TEST_F(MonitorRecoveryTest, AJobThatGoesOnFromASnapshotIsNotBehindItsBegin) {
  Join();
  Plan(5000);
  Enter("training", 105);
  tracker_.OnProgress(ProgressOf(0, 5000), Seconds(106));
  EXPECT_EQ(NodeStates(tracker_.status(Seconds(106))).back().lag, 1);
}

// As after the scheduler has been away.
TEST_F(MonitorRecoveryTest, WhatIsToldTwiceCountsOnce) {
  Join();
  Plan();
  Enter("training", 105);
  for (int time = 0; time < 2; ++time) {
    for (int64_t i = 0; i < 10; ++i) {
      tracker_.OnProgress(ProgressOf(0, i), Seconds(106));
      EXPECT_EQ(tracker_.status(Seconds(106)).nodes.at({Role::kWorker, 0}).done,
                time == 0 ? i + 1 : 10);
    }
  }
  EXPECT_EQ(Json(107)["images"], 80);
  // What is done again is computed again.
  wire::Recovered recovered;
  recovered.set_iteration(8);
  tracker_.OnRecovered(recovered);
  tracker_.OnProgress(ProgressOf(0, 8), Seconds(108));
  EXPECT_EQ(Json(109)["images"], 88);
}

TEST_F(MonitorRecoveryTest, ImagesAreAlsoThoseOfTheSchedulerBefore) {
  for (const int64_t number : {0, 1}) {
    wire::JournalRecord record;
    *record.mutable_iteration() = Iteration(number, 0.5, 100, 16);
    tracker_.Restore(record);
  }
  Join();
  // The last of these they say again.
  for (const int64_t number : {1, 2}) {
    for (const int rank : {0, 1}) tracker_.OnProgress(ProgressOf(rank, number), Seconds(106));
  }
  EXPECT_EQ(Json(107)["images"], 48);
}

TEST_F(MonitorRecoveryTest, AnotherNumberOfWorkersIsNoLoss) {
  Join();
  wire::Recovered joined;
  *joined.add_joined() = Node(Role::kWorker, 2);
  tracker_.OnRecovered(joined);
  EXPECT_EQ(Json(107)["recovery_count"], 0);
  EXPECT_EQ(Json(107)["recoveries"].size(), 1);
  *joined.add_lost() = Node(Role::kWorker, 1);
  tracker_.OnRecovered(joined);
  EXPECT_EQ(Json(107)["recovery_count"], 1);
  tracker_.OnRecovered({});  // the exchange hung
  EXPECT_EQ(Json(107)["recovery_count"], 2);
}

// Its rank may be another's by then.
TEST_F(MonitorRecoveryTest, WhoHasLeftIsNotShownAnyMore) {
  Join();
  wire::Recovered recovered;
  *recovered.add_left() = Node(Role::kWorker, 1);
  tracker_.OnRecovered(recovered);
  EXPECT_EQ(Json(107)["nodes"].size(), 2);
  Join();
  recovered.mutable_left(0)->set_pid(99);
  tracker_.OnRecovered(recovered);
  EXPECT_EQ(Json(107)["nodes"].size(), 3);
}

// Also where nobody has joined the scheduler that comes next: what was written down is all.
TEST_F(MonitorRecoveryTest, WhoHasLeftIsNotShownAsLostAfterTheNextSchedulerHasCome) {
  wire::JournalRecord record;
  *record.mutable_start()->mutable_recovered()->add_left() = Node(Role::kWorker, 1);
  tracker_.Restore(record);
  EXPECT_EQ(Json(107)["nodes"].size(), 2);
}

TEST_F(MonitorRecoveryTest, RecoveryGoesBack) {
  Join();
  Plan();
  for (int64_t i = 0; i < 10; ++i) tracker_.OnIteration(Iteration(i, 0.5, 100, 16), Seconds(106));
  EXPECT_EQ(Json(107)["seconds_left"], 4);
  wire::Recovered recovered;
  recovered.set_iteration(4);
  tracker_.OnRecovered(recovered);
  EXPECT_TRUE(Json(107)["seconds_left"].is_null()) << "of those that come, none is known yet";
  EXPECT_EQ(Json(107)["iteration"], 4);
  EXPECT_EQ(Json(107)["history"]["loss"].size(), 4);
}

TEST_F(MonitorRecoveryTest, WhoTellsOfNoIterationHasBeenSilentSinceTrainingBegan) {
  Join();
  Plan();
  const auto of_worker_1 = [this](const char* key) { return Json(110)["nodes"].back()[key]; };
  EXPECT_TRUE(of_worker_1("silent_seconds").is_null()) << "nobody can have told yet";
  Enter("training", 105);
  tracker_.OnProgress(ProgressOf(0, 0), Seconds(106));
  EXPECT_EQ(of_worker_1("silent_seconds"), 5);
  const std::string metrics = MetricsText(tracker_.status(Seconds(110)));
  EXPECT_THAT(metrics, HasSubstr("poseidon_worker_silent_seconds{rank=\"1\"} 5\n"));
  for (const char* key : {"iteration_ms", "exchange_ms", "exposed_ms"}) {
    EXPECT_TRUE(of_worker_1(key).is_null()) << key;
  }
  for (const std::string name :
       {"iteration_duration", "exchange_duration", "exposed_communication"}) {
    const std::string metric = "poseidon_worker_" + name + "_seconds{rank=\"";
    EXPECT_THAT(metrics, HasSubstr(metric + "0\"}"));
    EXPECT_THAT(metrics, Not(HasSubstr(metric + "1\"}")));
  }
  Enter("holding", 108);
  EXPECT_TRUE(of_worker_1("silent_seconds").is_null()) << "it need not tell meanwhile";
}

}  // namespace
}  // namespace poseidon
