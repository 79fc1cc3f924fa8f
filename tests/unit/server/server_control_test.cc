// A server's control actor without a runtime: what it answers the scheduler.
#include "server/server_control.h"

#include <gtest/gtest.h>

#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

class ServerControlTest : public testing::Test {
 protected:
  ServerControlTest() : control_(Options()) {
    control_.OnStart(outbox_);
    wire::View view;
    view.set_base(kShardEpoch);
    view.set_epoch(kShardEpoch);
    view.set_your_rank(0);
    Receive(MessageKind::kView, view.SerializeAsString());
  }

  static ServerOptions Options() {
    ServerOptions options;
    options.member.role = Role::kServer;
    options.member.scheduler_deadline = Seconds(300);  // the job recovers
    return options;
  }

  // What the scheduler gets for it.
  std::vector<MessageKind> Receive(MessageKind kind, const std::string& body, uint32_t step = 0) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.from = {{Role::kScheduler, 0}, kControlLane};
    envelope.epoch = kShardEpoch;
    envelope.step = step;
    envelope.body = Payload::FromString(body);
    outbox_.Clear();
    control_.OnMessage(envelope, outbox_);
    std::vector<MessageKind> answers;
    for (const Envelope& sent : outbox_.messages) {
      if (sent.to.node.role == Role::kScheduler) answers.push_back(sent.kind);
    }
    return answers;
  }

  ServerControl control_;
  Outbox outbox_;
};

// Where the scheduler dies before the first plan of a server that has taken a lost one's rank, the
// next scheduler asks it what it has: nothing, and it gets all.
TEST_F(ServerControlTest, MayBeAskedToHoldBeforeItsFirstPlan) {
  using Kinds = std::vector<MessageKind>;
  EXPECT_EQ(Receive(MessageKind::kHold, "", 7), Kinds{MessageKind::kHoldings});
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_servers(2);
  AddBucket(plan, "a", {2}).mutable_chunks(0)->set_backup(1);
  plan.mutable_plan()->set_start_iteration(3);
  plan.mutable_plan()->add_holders(0);
  plan.mutable_plan()->mutable_buckets(0)->mutable_chunks(0)->set_recipient(Chunk::OWNER);
  EXPECT_EQ(Receive(MessageKind::kPlan, plan.SerializeAsString()), Kinds{MessageKind::kReady});
}

}  // namespace
}  // namespace poseidon
