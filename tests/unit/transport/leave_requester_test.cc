#include "transport/membership/leave_requester.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "core/error.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr double kDeadline = 20;  // seconds

class LeaveRequesterTest : public testing::Test {
 protected:
  LeaveRequesterTest() : requester_(Request(), "tcp://127.0.0.1:1", Seconds(kDeadline)) {}

  static wire::LeaveRequest Request() {
    wire::LeaveRequest request;
    request.set_worker(2);
    return request;
  }
  // What the actor does at that time; `seconds` since its start.
  template <typename Call>
  Outbox At(double seconds, const Call& call) {
    Outbox outbox;
    outbox.now = Seconds(100 + seconds);
    call(outbox);
    return outbox;
  }
  Outbox Start() {
    return At(0, [this](Outbox& outbox) { requester_.OnStart(outbox); });
  }
  Outbox Tick(double seconds) {
    return At(seconds, [this](Outbox& outbox) { requester_.OnTimer(1, outbox); });
  }
  Outbox Answer(ExitCode code) {
    const Envelope answer =
        MakeEnvelope(MessageKind::kLeave, Here(kControlLane), MakeEnd(code, "an answer"));
    return At(1, [&](Outbox& outbox) { requester_.OnMessage(answer, outbox); });
  }
  static std::optional<wire::End> ToldBy(const Outbox& outbox) {
    for (const Envelope& envelope : outbox.messages) {
      if (envelope.kind != MessageKind::kEnd) continue;
      wire::End end;
      end.ParseFromString(envelope.body.ToString());
      return end;
    }
    return std::nullopt;
  }
  static bool Asks(const Outbox& outbox) {
    if (outbox.messages.size() != 1 || outbox.messages[0].kind != MessageKind::kLeave) return false;
    wire::LeaveRequest sent;
    return sent.ParseFromString(outbox.messages[0].body.ToString()) && sent.worker() == 2;
  }

  LeaveRequester requester_;
};

TEST_F(LeaveRequesterTest, AsksAgainUntilTheDeadlineAndThenSaysSoOnce) {
  const Outbox started = Start();
  ASSERT_EQ(started.routes.size(), 1u);
  EXPECT_EQ(started.routes[0].endpoint, "tcp://127.0.0.1:1");
  EXPECT_TRUE(Asks(started));
  for (int second = 1; second < kDeadline; ++second) EXPECT_TRUE(Asks(Tick(second))) << second;
  const std::optional<wire::End> end = ToldBy(Tick(kDeadline));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code(), static_cast<int>(ExitCode::kDeadlineExceeded));
  EXPECT_THAT(end->reason(), HasSubstr("no scheduler has answered at tcp://127.0.0.1:1 within 20"));
  EXPECT_TRUE(Tick(kDeadline + 1).messages.empty());
}

TEST_F(LeaveRequesterTest, TheFirstAnswerIsTheApplications) {
  Start();
  const std::optional<wire::End> end = ToldBy(Answer(ExitCode::kConfigError));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code(), static_cast<int>(ExitCode::kConfigError));
  EXPECT_EQ(end->reason(), "an answer");
  EXPECT_FALSE(ToldBy(Answer(ExitCode::kSuccess)));
  EXPECT_TRUE(Tick(kDeadline + 1).messages.empty());
}

TEST_F(LeaveRequesterTest, WhatIsNoAnswerIsPassedOver) {
  Start();
  Envelope garbage = MakeEnvelope(MessageKind::kLeave, Here(kControlLane), Request());
  garbage.body = Payload::FromString("\xff\xff\xff");
  EXPECT_TRUE(
      At(1, [&](Outbox& outbox) { requester_.OnMessage(garbage, outbox); }).messages.empty());
  garbage.kind = MessageKind::kView;
  EXPECT_TRUE(
      At(1, [&](Outbox& outbox) { requester_.OnMessage(garbage, outbox); }).messages.empty());
  EXPECT_TRUE(Asks(Tick(2)));
}

}  // namespace
}  // namespace poseidon
