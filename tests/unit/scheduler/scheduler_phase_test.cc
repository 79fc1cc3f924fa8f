// What the scheduler's actor tells a monitor of where the job stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "scheduler/scheduler_actor.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

class SchedulerPhaseTest : public testing::Test {
 protected:
  void Start(bool monitored) {
    SchedulerOptions options;
    if (monitored) options.job.mutable_monitor();
    scheduler_ = MakeScheduler(std::move(options));
    scheduler_->OnStart(outbox_);
  }

  // The phases that the application has been told while the node registers.
  std::vector<std::string> Register(Role role) {
    wire::Register request;
    request.mutable_node()->set_role(static_cast<uint32_t>(role));
    request.mutable_node()->set_rank(0);
    request.mutable_node()->set_host("node");
    for (int lane = 0; lane < 3; ++lane) request.mutable_node()->add_endpoints("somewhere");
    request.set_incarnation(static_cast<uint64_t>(role));
    outbox_.Clear();
    scheduler_->OnMessage(MakeEnvelope(MessageKind::kRegister, Here(kControlLane), request),
                          outbox_);
    std::vector<std::string> told;
    for (const Envelope& envelope : outbox_.messages) {
      if (envelope.kind != MessageKind::kJobPhase) continue;
      EXPECT_EQ(envelope.to, Here(kApplicationLane));
      EXPECT_TRUE(phase_.ParseFromString(envelope.body.ToString()));
      told.push_back(phase_.phase());
    }
    return told;
  }

  std::unique_ptr<Actor> scheduler_;
  Outbox outbox_;
  wire::JobPhase phase_;  // told last
};

TEST_F(SchedulerPhaseTest, TellsNewsOnce) {
  Start(true);
  EXPECT_THAT(Register(Role::kServer), testing::ElementsAre("gathering"));
  EXPECT_EQ(phase_.waiting_for(), "worker 0 to join");
  EXPECT_THAT(Register(Role::kServer), testing::IsEmpty());
  EXPECT_THAT(Register(Role::kWorker), testing::ElementsAre("declaring"));
  EXPECT_EQ(phase_.waiting_for(), "");
  ASSERT_EQ(phase_.missing_size(), 1);  // servers declare nothing
  EXPECT_EQ(phase_.missing(0).role(), static_cast<uint32_t>(Role::kWorker));
}

TEST_F(SchedulerPhaseTest, WithoutAMonitorNothingIsTold) {
  Start(false);
  EXPECT_THAT(Register(Role::kServer), testing::IsEmpty());
  EXPECT_THAT(Register(Role::kWorker), testing::IsEmpty());
}

// Who has the job's key may say anything.
TEST_F(SchedulerPhaseTest, ProgressBeyondAllTrainingsIsIgnored) {
  Start(true);
  Register(Role::kServer);
  Register(Role::kWorker);
  uint64_t epoch = 0;
  for (const Envelope& envelope : outbox_.messages) epoch = std::max(epoch, envelope.epoch);
  const auto told = [&](int64_t iteration) {
    wire::Progress progress;
    progress.set_iteration(iteration);
    Envelope envelope = MakeEnvelope(MessageKind::kProgress, Here(kControlLane), progress);
    envelope.from = {{Role::kWorker, 0}, kControlLane};
    envelope.epoch = epoch;
    outbox_.Clear();
    scheduler_->OnMessage(envelope, outbox_);
    return std::ranges::count(outbox_.messages, MessageKind::kProgress, &Envelope::kind);
  };
  EXPECT_EQ(told(0), 1);
  for (const int64_t iteration : {int64_t{-1}, std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max(), (int64_t{1} << 53) + 1}) {
    EXPECT_EQ(told(iteration), 0) << iteration;
  }
}

// Who comes when the job has ended hears how, but for who belongs to another job.
TEST_F(SchedulerPhaseTest, WhoComesTooLateHearsOfTheEnd) {
  Start(false);
  Register(Role::kServer);
  Register(Role::kWorker);
  scheduler_->OnMessage(
      MakeEnvelope(MessageKind::kStop, Here(kControlLane), MakeEnd(ExitCode::kSuccess, "is done")),
      outbox_);
  const auto answer = [&](uint64_t incarnation, uint64_t job) {
    wire::Register request;
    request.mutable_node()->set_role(static_cast<uint32_t>(Role::kWorker));
    for (int lane = 0; lane < 3; ++lane) request.mutable_node()->add_endpoints("somewhere");
    request.set_incarnation(incarnation);
    request.set_job_fingerprint(job);
    outbox_.Clear();
    scheduler_->OnMessage(MakeEnvelope(MessageKind::kRegister, Here(kControlLane), request),
                          outbox_);
    const Envelope& last = outbox_.messages.back();
    wire::End end;
    EXPECT_TRUE(end.ParseFromString(last.body.ToString()));
    return std::to_string(end.exit_code()) + " " + end.reason() +
           (last.epoch == 0 ? "" : ", as a member");
  };
  EXPECT_EQ(answer(static_cast<uint64_t>(Role::kWorker), 0), "0 is done, as a member");
  EXPECT_EQ(answer(99, 0), "0 was not needed: is done");
  EXPECT_THAT(answer(99, 1), testing::StartsWith("5 the scheduler refused this worker: "));
}

}  // namespace
}  // namespace poseidon
