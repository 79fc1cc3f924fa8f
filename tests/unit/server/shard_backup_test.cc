// Two shards that keep a chunk, and what they say to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

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
    actor_->OnStart(outbox_);
  }

  std::vector<Envelope>& Receive(const Envelope& envelope) {
    outbox_.Clear();
    actor_->OnMessage(envelope, outbox_);
    std::ranges::move(outbox_.work, std::back_inserter(left_));
    outbox_.work.clear();
    return Sent();
  }
  // What it sends when it has done the work that it has left.
  std::vector<Envelope>& DoWork() {
    outbox_.Clear();
    outbox_.work = std::exchange(left_, {});
    FinishWork(outbox_);
    return Sent();
  }
  std::vector<Envelope>& Begin() {
    Envelope training;
    training.kind = MessageKind::kTraining;
    return Receive(training);
  }
  // What the scan at `seconds` reports, to which all others have come in time; "" if nothing.
  std::string Scan(double seconds) {
    while (outbox_.now < Seconds(seconds)) {
      outbox_.Clear();
      outbox_.now = std::min(outbox_.now + Seconds(1), Seconds(seconds));
      actor_->OnTimer(1, outbox_);
    }
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
  std::vector<Envelope>& Sent() {
    for (Envelope& sent : outbox_.messages) sent.from = {self_, kFirstDataLane};
    return outbox_.messages;
  }

  NodeId self_;
  std::shared_ptr<ShardState> state_;
  std::unique_ptr<ShardActor> actor_;
  Outbox outbox_;
  std::vector<Work> left_;
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

// A layer of 2 x 3 at the same two servers, in chunks of 4 and 2 floats, with factors of one row.
wire::PlanAndModel BackedUpLayer(int64_t start = 0) {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_servers(2);
  BucketPlan& bucket = AddBucket(plan, "fc", {4, 2});
  bucket.set_scheme(ADAM);
  for (Chunk& chunk : *bucket.mutable_chunks()) chunk.set_backup(1);
  InnerProductSpec& product = *plan.mutable_model()->mutable_layers(0)->mutable_inner_product();
  product.set_outputs(2);
  product.set_inputs(3);
  product.set_rows(1);
  if (start > 0) {
    plan.mutable_plan()->set_start_iteration(start);
    plan.mutable_plan()->add_holders(0);
  }
  return plan;
}

class FactorLayerBackupTest : public testing::Test {
 protected:
  FactorLayerBackupTest() {
    Confirm(backup_, owner_,
            owner_.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({1, 2, 3, 4}))));
    Confirm(backup_, owner_,
            owner_.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({5, 6}), 1)));
  }

  // What an owner sends when it gets the factors of both workers, of which the sum is
  // {2, 4, 7, 0, 0, 1}.
  static std::vector<Envelope> Gather(Shard& owner, int64_t iteration) {
    std::vector<Envelope> sent;
    const auto receive = [&](int worker, uint32_t factor, const Floats& floats) {
      const auto& more =
          owner.Receive(ShardFrame(MessageKind::kFactors, worker, iteration, Body(floats), factor));
      sent.insert(sent.end(), more.begin(), more.end());
    };
    receive(1, 0, {1, -1});
    receive(0, 1, {1, 2, 4});
    receive(0, 0, {1, 1});
    receive(1, 1, {1, 2, 3});
    return sent;
  }
  // The backup gets what the owner sends; what it sends itself, with the work done.
  static std::vector<Envelope> Replicate(Shard& backup, const std::vector<Envelope>& sent) {
    for (const Envelope& frame : sent) {
      EXPECT_EQ(frame.kind, MessageKind::kFactors);
      EXPECT_EQ(frame.to.node, kBackup);
      EXPECT_THAT(backup.Receive(frame), IsEmpty());
    }
    return backup.DoWork();
  }
  static std::vector<Envelope> ReceiveAll(Shard& shard, const std::vector<Envelope>& frames) {
    std::vector<Envelope> sent;
    for (const Envelope& frame : frames) {
      const auto& more = shard.Receive(frame);
      sent.insert(sent.end(), more.begin(), more.end());
    }
    return sent;
  }
  // Of each chunk, to each worker, for the forward pass of `iteration`.
  static void ExpectAnswers(const std::vector<Envelope>& answers, int64_t iteration,
                            const Floats& values) {
    ASSERT_EQ(answers.size(), 4U);
    for (const Envelope& answer : answers) {
      EXPECT_EQ(answer.kind, MessageKind::kValues);
      EXPECT_EQ(answer.iteration, iteration);
      const auto begin = values.begin() + (answer.chunk == 0 ? 0 : 4);
      EXPECT_EQ(FloatsOf(answer.body), Floats(begin, begin + (answer.chunk == 0 ? 4 : 2)));
    }
  }

  Shard owner_{BackedUpLayer(), kOwner};
  Shard backup_{BackedUpLayer(), kBackup};
  // With half of the mean gradient taken away.
  const Floats updated_{0.5F, 1, 1.25F, 4, 5, 5.75F};
};

TEST_F(FactorLayerBackupTest, IsSentTheFactorsAndAnswersAreTheSame) {
  const std::vector<Envelope> sent = Gather(owner_, 0);
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(sent[0].chunk, 2U);  // the first of worker 1
  EXPECT_EQ(sent[1].chunk, 1U);  // the second of worker 0
  EXPECT_THAT(owner_.DoWork(), IsEmpty());
  const std::vector<Envelope> replies = Replicate(backup_, sent);
  ASSERT_EQ(replies.size(), 2U);
  ExpectAnswers(ReceiveAll(owner_, replies), 1, updated_);
  EXPECT_EQ(owner_.dropped() + backup_.dropped(), 0);
}

TEST_F(FactorLayerBackupTest, ABackupThatIsQuickerThanTheOwnerDoesNotAnswerForIt) {
  const std::vector<Envelope> replies = Replicate(backup_, Gather(owner_, 0));
  EXPECT_EQ(backup_.holdings().chunks(1).iteration(), 1);
  EXPECT_EQ(owner_.holdings().chunks(1).iteration(), 0);
  EXPECT_THAT(ReceiveAll(owner_, replies), IsEmpty());
  ExpectAnswers(owner_.DoWork(), 1, updated_);
  EXPECT_EQ(owner_.dropped() + backup_.dropped(), 0);
}

TEST_F(FactorLayerBackupTest, EitherMayBeTheFirstOfAChunk) {
  const std::vector<Envelope> replies = Replicate(backup_, Gather(owner_, 0));
  EXPECT_THAT(owner_.Receive(replies[1]), IsEmpty());
  std::vector<Envelope> answers = owner_.DoWork();
  EXPECT_EQ(answers.size(), 2U);
  const auto& more = owner_.Receive(replies[0]);
  answers.insert(answers.end(), more.begin(), more.end());
  ExpectAnswers(answers, 1, updated_);
}

TEST_F(FactorLayerBackupTest, WhatIsRepeatedOrForeignIsDropped) {
  const std::vector<Envelope> sent = Gather(owner_, 0);
  EXPECT_THAT(backup_.Receive(sent[0]), IsEmpty());
  EXPECT_THAT(backup_.Receive(sent[0]), IsEmpty());  // again
  Envelope odd = sent[1];
  const auto expect_dropped = [&](const std::function<void(Envelope&)>& change) {
    Envelope changed = odd;
    change(changed);
    const int64_t before = backup_.dropped();
    EXPECT_THAT(backup_.Receive(changed), IsEmpty());
    EXPECT_EQ(backup_.dropped(), before + 1);
  };
  EXPECT_EQ(backup_.dropped(), 1);
  expect_dropped([](Envelope& e) { e.chunk = 4; });  // there is no worker 2
  expect_dropped([](Envelope& e) { e.chunk = 0xFFFFFFFF; });
  expect_dropped([](Envelope& e) { e.bucket = 1; });
  expect_dropped([](Envelope& e) { e.iteration = 1; });
  expect_dropped([](Envelope& e) { e.body = Body({1}); });
  expect_dropped([](Envelope& e) { e.from.node = {Role::kServer, 2}; });
  expect_dropped([](Envelope& e) { e.from.node = {Role::kWorker, 0}; });
  expect_dropped([](Envelope& e) { e.kind = MessageKind::kReplica; });
  expect_dropped([](Envelope& e) { e.kind = MessageKind::kReplicated; });
  // An owner takes factors from no server.
  odd.from.node = kBackup;
  EXPECT_THAT(owner_.Receive(odd), IsEmpty());
  EXPECT_EQ(owner_.dropped(), 1);
}

TEST_F(FactorLayerBackupTest, ABackupThatIsSilentIsNamed) {
  Gather(owner_, 0);
  owner_.DoWork();
  EXPECT_EQ(owner_.Scan(9), "");
  EXPECT_EQ(owner_.Scan(10), "the copy of layer fc for iteration 1, server 1");
}

// The backup has applied what the owner has not: both go back, and come to the same again.
TEST_F(FactorLayerBackupTest, BothGoBackWhoeverWasQuicker) {
  ReceiveAll(owner_, Replicate(backup_, Gather(owner_, 0)));
  ExpectAnswers(owner_.DoWork(), 1, updated_);
  const std::vector<Envelope> replies = Replicate(backup_, Gather(owner_, 1));
  ReceiveAll(owner_, replies);
  ASSERT_EQ(owner_.holdings().chunks(0).iteration(), 1);
  ASSERT_EQ(backup_.holdings().chunks(0).iteration(), 2);
  Shard owner(BackedUpLayer(1), kOwner, &owner_);
  Shard backup(BackedUpLayer(1), kBackup, &backup_);
  ExpectAnswers(owner.Begin(), 1, updated_);
  ReceiveAll(owner, Replicate(backup, Gather(owner, 1)));
  std::vector<Envelope> undisturbed = owner_.DoWork();
  std::vector<Envelope> again = owner.DoWork();
  ASSERT_EQ(again.size(), undisturbed.size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].iteration, 2);
    EXPECT_EQ(FloatsOf(again[i].body), FloatsOf(undisturbed[i].body));
  }
}

}  // namespace
}  // namespace poseidon
