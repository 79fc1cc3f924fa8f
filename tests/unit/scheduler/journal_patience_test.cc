// For how long JournalGate waits for a record to be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/journal/journal_gate.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr Duration kPatience = Seconds(8);

// Writes each message down before it answers; the end that it is asked for, too.
class Scribe : public Actor {
 public:
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    outbox.Send(MakeEnvelope(MessageKind::kJournal, Here(kApplicationLane), wire::JournalRecord()));
    Envelope answer = envelope;
    if (answer.kind == MessageKind::kStop) answer.kind = MessageKind::kEnd;
    outbox.Send(std::move(answer));
  }
};

// A gate in a runtime whose only timers are the gate's.
class JournalGatePatienceTest : public testing::Test {
 protected:
  void Hear(MessageKind kind, int64_t iteration = 0) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.iteration = iteration;
    CarryOut([&](Outbox& outbox) { gate_.OnMessage(envelope, outbox); });
  }

  void PassTime(Duration duration) {
    const Time until = now_ + duration;
    while (due_ && due_->second <= until) {
      now_ = due_->second;
      const TimerId timer = std::exchange(due_, std::nullopt)->first;
      CarryOut([&](Outbox& outbox) { gate_.OnTimer(timer, outbox); });
    }
    now_ = until;
  }

  // Of what has left, but the records.
  std::vector<MessageKind> Left() const {
    std::vector<MessageKind> kinds;
    for (const Envelope& envelope : left_) {
      if (envelope.kind != MessageKind::kJournal) kinds.push_back(envelope.kind);
    }
    return kinds;
  }

  JournalGate gate_{std::make_unique<Scribe>(), kPatience};
  std::vector<Envelope> left_;

 private:
  template <typename Call>
  void CarryOut(const Call& call) {
    Outbox outbox;
    outbox.now = now_;
    call(outbox);
    for (Envelope& envelope : outbox.messages) left_.push_back(std::move(envelope));
    for (const Outbox::Timer& timer : outbox.timers) due_ = {timer.id, now_ + *timer.delay};
  }

  Time now_{};
  std::optional<std::pair<TimerId, Time>> due_;
};

TEST_F(JournalGatePatienceTest, ADiskThatDoesNotAnswerEndsTheJob) {
  Hear(MessageKind::kView);
  PassTime(kPatience - Seconds(0.1));
  EXPECT_THAT(Left(), testing::IsEmpty());
  PassTime(Seconds(0.1));
  EXPECT_THAT(Left(), testing::UnorderedElementsAre(MessageKind::kNotice, MessageKind::kView,
                                                    MessageKind::kEnd));
  wire::End end;
  ASSERT_TRUE(end.ParseFromString(left_.back().body.ToString()));
  EXPECT_EQ(end.exit_code(), static_cast<int>(ExitCode::kFailure));
  EXPECT_EQ(end.reason(),
            "can't write scheduler.journal: the disk of the scheduler's --out has not answered for "
            "8s, and without its journal the job would not survive its scheduler; see whether the "
            "file server is there");
  left_.clear();
  Hear(MessageKind::kPlan);
  EXPECT_THAT(Left(), testing::ElementsAre(MessageKind::kPlan)) << "nothing is held any more";
}

TEST_F(JournalGatePatienceTest, ADiskThatIsSlowIsWaitedForAtEachRecord) {
  Hear(MessageKind::kView);
  for (int64_t record = 1; record <= 3; ++record) {
    PassTime(kPatience / 2);
    Hear(MessageKind::kPlan);
    PassTime(kPatience / 2 - Seconds(0.1));
    Hear(MessageKind::kJournaled, record);
  }
  EXPECT_THAT(Left(),
              testing::ElementsAre(MessageKind::kView, MessageKind::kPlan, MessageKind::kPlan));
  Hear(MessageKind::kJournaled, 4);
  PassTime(10 * kPatience);
  EXPECT_THAT(Left(), testing::ElementsAre(MessageKind::kView, MessageKind::kPlan,
                                           MessageKind::kPlan, MessageKind::kPlan));
}

// Who writes a disk that fails tries it every second, and is to end the job itself.
TEST(HangingJournalPatienceTest, IsLongerThanThatOfADiskThatFailsAndLessThanNodesHave) {
  Job job;
  EXPECT_EQ(HangingJournalPatience(job), Seconds(48));
  // A disk may need longer than an exchange.
  job.mutable_communication()->set_stall_deadline_seconds(8);
  EXPECT_EQ(HangingJournalPatience(job), Seconds(15));
  job.mutable_cluster()->set_join_deadline_seconds(12);
  EXPECT_EQ(HangingJournalPatience(job), Seconds(9));
}

}  // namespace
}  // namespace poseidon
