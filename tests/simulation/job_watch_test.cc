// What the scheduler's program does with the layers' times that the workers have measured.
#include "cli/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "core/error.h"
#include "core/program.h"
#include "planner/job_plan.h"
#include "tests/simulation/training_case.h"
#include "transport/actor.h"
#include "transport/membership/member.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

// A scheduler whose job loses somebody before it can go over to another plan: its own goes out
// again. The job ends when it is asked once more.
class PassesOver : public Actor {
 public:
  PassesOver(const wire::PlanAndModel& plan, const wire::LayerTimes& times)
      : plan_(plan), times_(times) {}

  void OnStart(Outbox& outbox) override {
    outbox.Send(MakeEnvelope(MessageKind::kPlan, Here(kApplicationLane), plan_));
    outbox.Send(MakeEnvelope(MessageKind::kLayerTimes, Here(kApplicationLane), times_));
    outbox.SetTimer(0, std::chrono::minutes(1));
  }

  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.kind != MessageKind::kSwitchPlan) return;
    if (plan_.plan().number() > 0) return End(ExitCode::kSuccess, outbox);
    plan_.mutable_plan()->set_number(1);
    outbox.Send(MakeEnvelope(MessageKind::kPlan, Here(kApplicationLane), plan_));
  }

  void OnTimer(TimerId, Outbox& outbox) override { End(ExitCode::kDeadlineExceeded, outbox); }

 private:
  static void End(ExitCode code, Outbox& outbox) {
    outbox.Send(MakeEnvelope(MessageKind::kEnd, Here(kApplicationLane), MakeEnd(code, "")));
  }

  wire::PlanAndModel plan_;
  wire::LayerTimes times_;
};

TEST(JobWatchTest, ABetterPlanThatWasPassedOverIsSearchedForAgain) {
  const SimulatedClusterOptions options =
      SmallTraining(2, 2, {InnerProductLayer("product", 600, 600, 16)}, 30, Seconds(0.001));
  Job job = options.job;
  job.mutable_communication()->set_policy(Communication::TIME);
  job.mutable_communication()->set_deterministic(false);
  Job small_chunks = job;
  small_chunks.mutable_communication()->set_policy(Communication::ALL_PS);
  small_chunks.mutable_communication()->set_kv_pair_bytes(4096);
  wire::PlanAndModel current;
  *current.mutable_model() = options.work.model;
  *current.mutable_plan() = PlanJob(InformationBook(current.model(), 2, 2), small_chunks);
  wire::LayerTimes measured;
  measured.add_forward_ms(1);
  measured.add_backward_ms(1);

  ZmqRuntime runtime({Role::kScheduler, 0}, ZmqOptions());
  runtime.Attach(kControlLane, std::make_unique<PassesOver>(current, measured));
  JobWatch watch(runtime, job, false, nullptr, nullptr);
  Interruption interruption;
  testing::internal::CaptureStdout();
  runtime.Start();
  const wire::End end = watch.Run(interruption);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::HasSubstr("passed over, as another one came in between; it is searched for "
                                 "again"));
  EXPECT_EQ(end.exit_code(), static_cast<int>(ExitCode::kSuccess)) << "nobody asked again";
}

}  // namespace
}  // namespace poseidon
