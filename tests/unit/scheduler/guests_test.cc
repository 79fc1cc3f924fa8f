// Who is answered by a scheduler without being a node of its job: those that are refused, and
// `poseidon leave`. And who is not, for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "scheduler/spares.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/scheduler/scheduler_testing.h"

namespace poseidon {
namespace {

class GuestsTest : public SchedulerTest {
 protected:
  static wire::Node Guest(Role role, const std::string& endpoint) {
    wire::Node guest;
    guest.set_role(static_cast<uint32_t>(role));
    guest.add_endpoints(endpoint);
    return guest;
  }

  // Where the refusal of a process with this endpoint goes.
  Address Refuse(Role role, const std::string& endpoint) {
    wire::Register request;
    *request.mutable_node() = Guest(role, endpoint);
    request.mutable_node()->set_rank(1000);  // there is none such
    request.set_incarnation(1000);
    Send(MakeEnvelope(MessageKind::kRegister, Here(kControlLane), request));
    const auto refusal =
        std::ranges::find(outbox_.messages, MessageKind::kRefused, &Envelope::kind);
    if (refusal == outbox_.messages.end() || outbox_.routes.size() != 1) {
      ADD_FAILURE() << endpoint << " was not refused";
      return {};
    }
    EXPECT_EQ(outbox_.routes[0].to, refusal->to);
    EXPECT_EQ(outbox_.routes[0].endpoint, endpoint);
    return refusal->to;
  }

  void AskThatLeaves(const NodeId& worker, const wire::Node& guest,
                     wire::LeaveRequest request = {}) {
    request.set_worker(worker.rank);
    *request.mutable_from() = guest;
    Send(MakeEnvelope(MessageKind::kLeave, Here(kControlLane), request));
  }

  // "2 its reason", to who has just asked that a worker leaves.
  std::string LeaveAnswer() const {
    const auto answer = std::ranges::find(outbox_.messages, MessageKind::kLeave, &Envelope::kind);
    if (answer == outbox_.messages.end()) return "none";
    wire::End end;
    EXPECT_TRUE(end.ParseFromString(answer->body.ToString()));
    return std::to_string(end.exit_code()) + " " + end.reason();
  }
};

// The first one's socket may not be connected when the second one's answer is sent.
TEST_F(GuestsTest, TwoThatAreRefusedHaveAnAddressEach) {
  const Address first = Refuse(Role::kWorker, "tcp://127.0.0.1:1");
  const Address second = Refuse(Role::kWorker, "tcp://127.0.0.1:2");
  EXPECT_NE(first, second);
  EXPECT_EQ(Refuse(Role::kWorker, "tcp://127.0.0.1:1"), first);
  EXPECT_EQ(Refuse(Role::kWorker, "tcp://127.0.0.1:2"), second);
}

TEST_F(GuestsTest, HoweverManyTheyAreTheirAddressesAreFew) {
  std::set<Address> addresses;
  for (int port = 1; port <= 3 * kGuests; ++port) {
    addresses.insert(Refuse(Role::kWorker, "tcp://127.0.0.1:" + std::to_string(port)));
  }
  EXPECT_EQ(addresses.size(), static_cast<size_t>(kGuests));
  for (const Address& address : addresses) EXPECT_LT(address.node.rank, 0);
}

// A route is a socket that stays.
TEST_F(GuestsTest, OneThatCanBeNoNodeIsNotAnswered) {
  BeginTraining();
  for (const int role : {0, 1, 7, 1000}) {
    AskThatLeaves(kWorkers[0], Guest(static_cast<Role>(role), "tcp://127.0.0.1:1"));
    EXPECT_TRUE(outbox_.routes.empty()) << role;
    EXPECT_FALSE(HasSent(MessageKind::kLeave)) << role;
  }
  AskThatLeaves(kWorkers[0], Guest(Role::kWorker, "tcp://127.0.0.1:1"));
  EXPECT_EQ(outbox_.routes.size(), 1u);
  EXPECT_TRUE(HasSent(MessageKind::kLeave));
}

// It asks every second, and its own log can only say that nobody answers.
TEST_F(GuestsTest, WhoWaitsForTheWordOfItsRanksHolderIsLoggedOnce) {
  Register(kWorkers[0], 2);
  const LogLines log;
  for (int second = 0; second < 3; ++second) {
    Register(kWorkers[0], 10);
    EXPECT_TRUE(outbox_.messages.empty());
  }
  EXPECT_THAT(log.lines(),
              testing::ElementsAre("worker 0 (node, process 0) is not answered yet: its rank is "
                                   "taken; it gets it if its holder is not heard any more"));
}

// Whose scheduler had the port before.
TEST_F(GuestsTest, AWorkerDoesNotLeaveAnotherJob) {
  BeginTraining();
  const wire::Node guest = Guest(Role::kWorker, "tcp://127.0.0.1:1");
  wire::LeaveRequest request;
  request.set_job_fingerprint(options_.job_fingerprint + 1);
  *request.mutable_job() = options_.job;
  request.mutable_job()->set_name("another");
  AskThatLeaves(kWorkers[1], guest, request);
  const std::string refusal = "2 --config is not the one that this job runs with (";
  const std::string advice =
      "; give the job.prototxt in its output directory, or --scheduler=HOST:PORT";
  EXPECT_THAT(LeaveAnswer(), testing::AllOf(testing::StartsWith(refusal + "name is \"another\""),
                                            testing::EndsWith(")" + advice)));
  // As in the file that `poseidon run` was given.
  *request.mutable_job() = options_.job;
  request.mutable_job()->set_run(options_.job.run() + 1);
  AskThatLeaves(kWorkers[1], guest, request);
  EXPECT_THAT(LeaveAnswer(), testing::AllOf(testing::StartsWith(refusal + "run is "),
                                            testing::EndsWith(")" + advice)));
  request.set_job_fingerprint(options_.job_fingerprint);
  AskThatLeaves(kWorkers[1], guest, request);
  EXPECT_THAT(LeaveAnswer(), testing::HasSubstr("can't leave: the config has no `elastic`"));
  request.clear_job_fingerprint();
  AskThatLeaves(kWorkers[1], guest, request);
  EXPECT_THAT(LeaveAnswer(), testing::HasSubstr("can't leave: the config has no `elastic`"));
}

}  // namespace
}  // namespace poseidon
