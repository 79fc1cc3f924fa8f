// Two shards that keep a chunk, and what they say to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/update_rule_message.h"
#include "server/replication.h"
#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr NodeId kOwner{Role::kServer, 0};
constexpr NodeId kBackup{Role::kServer, 1};

// Two workers; one chunk of two floats, at server 0, backed up by server 1.
wire::PlanAndModel BackedUpPlan() {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_servers(2);
  AddBucket(plan, "a", {2}).mutable_chunks(0)->set_backup(1);
  return plan;
}

// Likewise, as it goes on after a loss.
wire::PlanAndModel GoingOn(int64_t start, Chunk::Recipient recipient) {
  wire::PlanAndModel plan = BackedUpPlan();
  plan.mutable_plan()->set_start_iteration(start);
  plan.mutable_plan()->add_holders(0);
  plan.mutable_plan()->mutable_buckets(0)->mutable_chunks(0)->set_recipient(recipient);
  return plan;
}

class Shard {
 public:
  Shard(const wire::PlanAndModel& plan, const NodeId& self, const Shard* before = nullptr)
      : self_(self),
        state_(std::make_shared<ShardState>(plan, ToUpdateRule(plan.model().update_rule()),
                                            ShardState::Options{.server = self.rank})) {
    if (before != nullptr) state_->TakeOver(*before->state_, plan.plan());
    ShardOptions options{.server = self.rank, .epoch = kShardEpoch, .stall_deadline = Seconds(10)};
    actor_ = std::make_unique<ShardActor>(plan, options, state_);
  }

  std::vector<Envelope>& Receive(const Envelope& envelope) {
    outbox_.Clear();
    actor_->OnMessage(envelope, outbox_);
    for (Envelope& sent : outbox_.messages) sent.from = {self_, kFirstDataLane};
    return outbox_.messages;
  }
  std::vector<Envelope>& Begin() {
    Envelope training;
    training.kind = MessageKind::kTraining;
    return Receive(training);
  }
  std::string Scan(double seconds) {
    outbox_.Clear();
    outbox_.now = Seconds(seconds);
    actor_->OnTimer(1, outbox_);
    if (outbox_.messages.empty()) return "";
    wire::Stalled stalled;
    EXPECT_TRUE(stalled.ParseFromString(outbox_.messages[0].body.ToString()));
    return stalled.waiting_for() + " server " + std::to_string(stalled.missing(0).rank());
  }
  wire::Holdings holdings() const {
    wire::Holdings holdings;
    state_->AddTo(holdings);
    return holdings;
  }
  int64_t dropped() const { return actor_->dropped_frames(); }

 private:
  NodeId self_;
  std::shared_ptr<ShardState> state_;
  std::unique_ptr<ShardActor> actor_;
  Outbox outbox_;
};

// The two frames' answer: what the owner says to the workers.
std::vector<Envelope> Confirm(Shard& backup, Shard& owner, const std::vector<Envelope>& sent) {
  std::vector<Envelope> answers;
  for (const Envelope& frame : std::vector<Envelope>(sent)) {
    EXPECT_EQ(frame.to.node, kBackup) << KindName(frame.kind);
    for (const Envelope& reply : std::vector<Envelope>(backup.Receive(frame))) {
      EXPECT_EQ(reply.kind, MessageKind::kReplicated);
      const auto& more = owner.Receive(reply);
      answers.insert(answers.end(), more.begin(), more.end());
    }
  }
  return answers;
}

class ShardBackupTest : public testing::Test {
 protected:
  // Both have the values for iteration `iterations`.
  void Train(int64_t iterations) {
    Confirm(backup_, owner_,
            owner_.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({10, 20}))));
    for (int64_t t = 0; t < iterations; ++t) Confirm(backup_, owner_, Update(t));
  }
  std::vector<Envelope> Update(int64_t iteration) {
    owner_.Receive(ShardFrame(MessageKind::kGradient, 1, iteration, Body({1, 2})));
    return owner_.Receive(ShardFrame(MessageKind::kGradient, 0, iteration, Body({3, 4})));
  }

  Shard owner_{BackedUpPlan(), kOwner};
  Shard backup_{BackedUpPlan(), kBackup};
};

TEST_F(ShardBackupTest, WorkersAreAnsweredWhenTheBackupHasIt) {
  const std::vector<Envelope> start =
      owner_.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({10, 20})));
  ASSERT_EQ(start.size(), 1u);  // no optimizer state: it begins with zeros
  EXPECT_EQ(start[0].kind, MessageKind::kInitialValues);
  EXPECT_EQ(Confirm(backup_, owner_, start).size(), 2u);

  const std::vector<Envelope> replica = Update(0);
  ASSERT_EQ(replica.size(), 1u);
  EXPECT_EQ(replica[0].kind, MessageKind::kReplica);
  EXPECT_EQ(replica[0].iteration, 0);
  EXPECT_THAT(FloatsOf(replica[0].body), ElementsAre(4, 6));
  const std::vector<Envelope> answers = Confirm(backup_, owner_, replica);
  ASSERT_EQ(answers.size(), 2u);
  for (const Envelope& answer : answers) {
    EXPECT_EQ(answer.kind, MessageKind::kValues);
    EXPECT_EQ(answer.iteration, 1);
    EXPECT_THAT(FloatsOf(answer.body), ElementsAre(9, 18.5F));
  }
  EXPECT_EQ(owner_.dropped() + backup_.dropped(), 0);
}

TEST_F(ShardBackupTest, WhatIsRepeatedOrForeignIsDropped) {
  Train(1);
  const std::vector<Envelope> replica = Update(1);
  const Envelope reply = backup_.Receive(replica[0])[0];
  EXPECT_THAT(backup_.Receive(replica[0]), IsEmpty());
  EXPECT_EQ(backup_.dropped(), 1);
  EXPECT_EQ(owner_.Receive(reply).size(), 2u);
  EXPECT_THAT(owner_.Receive(reply), IsEmpty());
  EXPECT_EQ(owner_.dropped(), 1);
  Envelope odd = replica[0];
  odd.iteration = 2;
  odd.from.node.rank = 2;
  EXPECT_THAT(backup_.Receive(odd), IsEmpty());
  odd.from.node = kOwner;
  odd.body = Body({1});
  EXPECT_THAT(backup_.Receive(odd), IsEmpty());
  odd.kind = MessageKind::kReplicated;
  EXPECT_THAT(backup_.Receive(odd), IsEmpty());
  EXPECT_EQ(backup_.dropped(), 4);
}

TEST_F(ShardBackupTest, ABackupThatIsSilentIsNamed) {
  Train(1);
  Update(1);
  EXPECT_EQ(owner_.Scan(9), "");
  EXPECT_EQ(owner_.Scan(10), "the copy of layer a for iteration 2, server 1");
}

TEST_F(ShardBackupTest, BothTellWhatTheyHave) {
  EXPECT_THAT(owner_.holdings().chunks(), IsEmpty());
  Train(2);
  Update(2);  // the backup does not hear of it
  ASSERT_EQ(owner_.holdings().chunks_size(), 1);
  EXPECT_EQ(owner_.holdings().chunks(0).iteration(), 3);
  ASSERT_EQ(backup_.holdings().chunks_size(), 1);
  EXPECT_EQ(backup_.holdings().chunks(0).iteration(), 2);
}

// The owner has applied the gradients of iteration 2, the backup has not: both go back to 2.
TEST_F(ShardBackupTest, BothGoBackAndAnswerAtOnce) {
  Train(2);
  const std::vector<Envelope> undisturbed = Update(2);
  const std::vector<Envelope> expected = Confirm(backup_, owner_, undisturbed);
  const wire::PlanAndModel plan = GoingOn(2, Chunk::NOBODY);
  Shard owner(plan, kOwner, &owner_);
  Shard backup(plan, kBackup, &backup_);
  const std::vector<Envelope> start = owner.Begin();
  ASSERT_EQ(start.size(), 2u);
  EXPECT_EQ(start[0].iteration, 2);
  EXPECT_THAT(owner.Begin(), IsEmpty());  // said again
  EXPECT_THAT(backup.Begin(), IsEmpty());
  owner.Receive(ShardFrame(MessageKind::kGradient, 1, 2, Body({1, 2})));
  const std::vector<Envelope> again =
      Confirm(backup, owner, owner.Receive(ShardFrame(MessageKind::kGradient, 0, 2, Body({3, 4}))));
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(FloatsOf(again[0].body), FloatsOf(expected[0].body));
}

TEST_F(ShardBackupTest, AnOwnerThatIsLostIsMadeAgainFromItsBackup) {
  Train(3);
  const wire::PlanAndModel plan = GoingOn(3, Chunk::OWNER);
  Shard owner(plan, kOwner);
  Shard backup(plan, kBackup, &backup_);
  EXPECT_THAT(owner.Begin(), IsEmpty());
  std::vector<Envelope> answers;
  for (const Envelope& frame : std::vector<Envelope>(backup.Begin())) {
    EXPECT_EQ(frame.to.node, kOwner);
    answers = owner.Receive(frame);
  }
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].iteration, 3);
  // With the same optimizer state, so both come to the same.
  const std::vector<Envelope> expected = Confirm(backup_, owner_, Update(3));
  owner.Receive(ShardFrame(MessageKind::kGradient, 1, 3, Body({1, 2})));
  const std::vector<Envelope> again =
      Confirm(backup, owner, owner.Receive(ShardFrame(MessageKind::kGradient, 0, 3, Body({3, 4}))));
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(FloatsOf(again[0].body), FloatsOf(expected[0].body));
}

TEST_F(ShardBackupTest, ABackupThatIsLostIsMadeAgainBeforeWorkersGoOn) {
  Train(3);
  const wire::PlanAndModel plan = GoingOn(3, Chunk::BACKUP);
  Shard owner(plan, kOwner, &owner_);
  Shard backup(plan, kBackup);
  const std::vector<Envelope> start = owner.Begin();
  ASSERT_EQ(start.size(), 2u);
  EXPECT_EQ(start[1].kind, MessageKind::kInitialOptimizerState);
  EXPECT_EQ(Confirm(backup, owner, start).size(), 2u);
  EXPECT_EQ(backup.holdings().chunks(0).iteration(), 3);
}

}  // namespace
}  // namespace poseidon
