// What the scheduler does when a node of a job under way is lost, and how long it waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "scheduler/scheduler_actor.h"
#include "transport/membership/heartbeat.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr NodeId kServer{Role::kServer, 0};
constexpr NodeId kWorkers[] = {{Role::kWorker, 0}, {Role::kWorker, 1}};
constexpr double kStall = 300;  // seconds

// A job of two workers that recovers, whose nodes' part is the test's.
class SchedulerDeadlinesTest : public testing::Test {
 protected:
  explicit SchedulerDeadlinesTest(bool elastic = false) {
    SchedulerOptions options;
    options.job.mutable_cluster()->set_workers(2);
    options.job.mutable_cluster()->set_servers(1);
    options.job.mutable_cluster()->set_join_deadline_seconds(60);
    options.job.mutable_communication()->set_stall_deadline_seconds(kStall);
    options.job.mutable_recovery()->set_mode(elastic ? Recovery::SHRINK : Recovery::REPLACE);
    if (elastic) options.job.mutable_elastic()->set_min_workers(1);
    scheduler_ = MakeScheduler(std::move(options));
    outbox_.now = Time(Seconds(1));
    scheduler_->OnStart(outbox_);
  }

  void Send(Envelope envelope) {
    outbox_.Clear();
    scheduler_->OnMessage(envelope, outbox_);
    for (const Envelope& sent : outbox_.messages) {
      bool parsed = true;
      if (sent.kind == MessageKind::kView) parsed = view_.ParseFromString(sent.body.ToString());
      if (sent.kind == MessageKind::kPlan) parsed = plan_.ParseFromString(sent.body.ToString());
      EXPECT_TRUE(parsed);
      if (sent.kind == MessageKind::kEnd && sent.to.node == kServer) {
        wire::End end;
        EXPECT_TRUE(end.ParseFromString(sent.body.ToString()));
        ADD_FAILURE() << "the job has ended: " << end.reason();
      }
      if (sent.kind == MessageKind::kHold) hold_ = sent.step;
    }
  }

  void SendAs(const NodeId& node, Envelope envelope) {
    envelope.from = {node, kControlLane};
    envelope.epoch = view_.epoch();
    Send(std::move(envelope));
  }

  template <typename Message>
  void Tell(const NodeId& node, MessageKind kind, const Message& message) {
    SendAs(node, MakeEnvelope(kind, {{Role::kScheduler, 0}, kControlLane}, message));
  }

  void Register(const NodeId& node, uint64_t incarnation) {
    wire::Register request;
    request.mutable_node()->set_role(static_cast<uint32_t>(node.role));
    request.mutable_node()->set_rank(node.rank);
    request.mutable_node()->set_host("node");
    for (int lane = 0; lane < 3; ++lane) request.mutable_node()->add_endpoints("somewhere");
    request.set_incarnation(incarnation);
    Send(MakeEnvelope(MessageKind::kRegister, Here(kControlLane), request));
  }

  void SayReady(const NodeId& node) {
    Envelope ready;
    ready.kind = MessageKind::kReady;
    ready.step = static_cast<uint32_t>(plan_.plan().number());
    SendAs(node, ready);
  }

  void BeginTraining() {
    Register(kServer, 1);
    for (const NodeId& worker : kWorkers) Register(worker, 2 + worker.rank);
    ModelSpec model;
    model.set_iterations(10);
    model.set_batch(1);
    model.mutable_update_rule()->set_type("SGD");
    model.mutable_update_rule()->set_lr_policy("fixed");
    model.mutable_update_rule()->set_base_lr(0.1F);
    LayerSpec& layer = *model.add_layers();
    layer.set_name("a");
    layer.add_blobs()->add_shape(100);
    for (const NodeId& worker : kWorkers) {
      wire::Declaration declaration;
      declaration.set_model(model.SerializeAsString());
      Tell(worker, MessageKind::kDeclareModel, declaration);
    }
    SayReady(kServer);
    for (const NodeId& worker : kWorkers) SayReady(worker);
  }

  void FallSilent(const NodeId& node) { FallSilent(node, view_.epoch()); }
  void FallSilent(const NodeId& node, uint64_t epoch) {
    wire::Silent silent;
    silent.add_nodes()->set_role(static_cast<uint32_t>(node.role));
    silent.mutable_nodes(0)->set_rank(node.rank);
    silent.add_silent_seconds(10);
    Envelope report = MakeEnvelope(MessageKind::kPeerSilent, Here(kControlLane), silent);
    report.epoch = epoch;
    Send(std::move(report));
  }

  // Worker 0 has stopped the exchange.
  void Hold() {
    wire::Holdings holdings;
    holdings.set_complete(true);
    holdings.set_layout(plan_.plan().layout());
    holdings.set_iteration(plan_.plan().start_iteration());
    Envelope held =
        MakeEnvelope(MessageKind::kHoldings, {{Role::kScheduler, 0}, kControlLane}, holdings);
    held.step = hold_;
    SendAs(kWorkers[0], held);
  }

  std::optional<double> deadline() const {
    std::optional<double> seconds;
    for (const Outbox::Timer& timer : outbox_.timers) {
      if (timer.id == 1 && timer.delay) seconds = ToSeconds(*timer.delay);
    }
    return seconds;
  }

  std::unique_ptr<Actor> scheduler_;
  Outbox outbox_;
  wire::View view_;
  wire::PlanAndModel plan_;
  uint32_t hold_ = 0;
};

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

class ElasticSchedulerTest : public SchedulerDeadlinesTest {
 protected:
  ElasticSchedulerTest() : SchedulerDeadlinesTest(true) {}
};

// As by a second SIGTERM: the job does not end with it.
TEST_F(ElasticSchedulerTest, ALeaverThatCanNotWaitIsLost) {
  BeginTraining();
  Envelope leave;
  leave.kind = MessageKind::kLeave;
  SendAs(kWorkers[1], leave);
  Tell(kWorkers[1], MessageKind::kFailed, MakeEnd(ExitCode::kInterrupted, "interrupted"));
  EXPECT_THAT(outbox_.messages,
              testing::Contains(testing::Field(&Envelope::kind, MessageKind::kHold)));
}

}  // namespace
}  // namespace poseidon
