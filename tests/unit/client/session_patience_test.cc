// A worker's program gives up later than whoever can name the culprit.
#include "client/session_patience.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

Job JobOf(Recovery::Mode mode) {
  Job job;
  job.mutable_cluster()->set_join_deadline_seconds(10);
  job.mutable_communication()->set_heartbeat_deadline_seconds(3);
  job.mutable_communication()->set_stall_deadline_seconds(20);
  Recovery& recovery = *job.mutable_recovery();
  recovery.set_mode(mode);
  recovery.set_scheduler_deadline_seconds(300);
  recovery.set_replacement_deadline_seconds(120);
  return job;
}

TEST(SessionPatienceTest, IsAMultipleOfTheOthersWhereNobodyIsReplaced) {
  const SessionPatience patience(JobOf(Recovery::NONE));
  EXPECT_EQ(patience.ForAllToJoin(), Seconds(26));
  EXPECT_EQ(patience.Join(), Seconds(20));
  EXPECT_EQ(patience.Stall(), Seconds(60));
}

// Nobody says how long no worker is lost.
TEST(SessionPatienceTest, ASpareIsNotInAHurry) {
  for (const Recovery::Mode mode : {Recovery::REPLACE, Recovery::SHRINK}) {
    EXPECT_GT(SessionPatience(JobOf(mode)).ForAllToJoin(), Seconds(30 * 24 * 3600));
  }
}

TEST(SessionPatienceTest, LastsUntilAnotherSchedulerIsThereAndTheLostAreReplaced) {
  const SessionPatience patience(JobOf(Recovery::REPLACE));
  for (const Duration duration : {patience.Join(), patience.Stall(), patience.Pause()}) {
    EXPECT_GT(duration, Seconds(300 + 120));
  }
  EXPECT_GE(patience.Recovery(), patience.Join() + patience.Stall());
}

// A job under way takes newcomers in once in so many seconds.
TEST(SessionPatienceTest, WhoComesToAJobUnderWayWaitsForTheNextChange) {
  Job job = JobOf(Recovery::SHRINK);
  const Duration before = SessionPatience(job).Join();
  job.mutable_elastic()->set_regroup_interval_seconds(500);
  EXPECT_GE(SessionPatience(job).Join(), before + Seconds(500));
}

}  // namespace
}  // namespace poseidon
