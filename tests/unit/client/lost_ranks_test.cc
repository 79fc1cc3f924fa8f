// Which ranks a Communicator takes for lost, and which not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/net/host_address.h"
#include "core/steady_now.h"
#include "core/time.h"
#include "poseidon/communicator.h"
#include "poseidon/error.h"
#include "proto/wire.pb.h"
#include "tests/free_endpoints.h"
#include "tests/unit/temporary_directory.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What ends sooner has not waited for the deadline.
constexpr Duration kDeadline = std::chrono::minutes(5);
constexpr Duration kSoon = std::chrono::minutes(1);
constexpr Duration kSilence = std::chrono::seconds(2);

// A rank in a process of its own, which is killed at the end if it is still there.
class RankProcess {
 public:
  explicit RankProcess(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also where something ends the test itself
    try {
      body();
    } catch (const Error& error) {
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  }
  ~RankProcess() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void Signal(int signal) const { kill(pid_, signal); }
  // Its exit code; -1: a signal has ended it.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

// A process of a rank, 0 or another, that is not what its program is now: says what it is given to
// rank 1.
class OtherProcess {
 public:
  // `port` 0: any, where nobody reaches it.
  OtherProcess(int port, const std::string& rank1, int rank = 0)
      : node_({Role::kWorker, rank}, Sockets(port)) {
    node_.Attach(kControlLane, std::make_unique<Forwarder>());
    node_.SetRoute(kRank1, "tcp://" + rank1);
    node_.Start();
  }

  void Say(MessageKind kind, const Payload& body, int64_t iteration = 0) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = kRank1;
    envelope.iteration = iteration;
    envelope.body = body;
    node_.Post(std::move(envelope));
  }
  // The next that anybody says to it.
  std::optional<Envelope> Hear() { return node_.mailbox().Take(kSoon); }

 private:
  static constexpr Address kRank1{{Role::kWorker, 1}, kControlLane};

  struct Forwarder : Actor {
    void OnMessage(const Envelope& envelope, Outbox& outbox) override {
      outbox.Send(envelope);
      outbox.messages.back().to = Here(kApplicationLane);
    }
  };

  static ZmqOptions Sockets(int port) {
    ZmqOptions options;
    options.bind_host = "127.0.0.1";
    options.control_port = port;
    return options;
  }

  ZmqRuntime node_;
};

CommunicatorOptions Options(const std::vector<std::string>& endpoints, int rank) {
  return {.rank = rank, .endpoints = endpoints, .deadline = kDeadline, .silence = kSilence};
}

void Sleep(Duration duration) { std::this_thread::sleep_for(duration); }

TEST(LostRanksTest, OneThatIsKilledIsNamedLongBeforeTheDeadline) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  RankProcess killed([&] {
    Communicator all(Options(endpoints, 1));
    all.Barrier();
    while (true) pause();
  });
  RankProcess hears([&] {
    Communicator all(Options(endpoints, 2));
    all.Barrier();
    all.Barrier();
  });
  Communicator all(Options(endpoints, 0));
  all.Barrier();
  killed.Signal(SIGKILL);
  const Time begin = SteadyNow();
  const std::string error = MessageOf<PeerLost>([&] { all.Barrier(); });
  EXPECT_THAT(error, HasSubstr("rank 1 (" + endpoints[1] + ")"));
  EXPECT_THAT(error, Not(HasSubstr("rank 2 (" + endpoints[2] + ") said nothing")));
  EXPECT_EQ(hears.Wait(), static_cast<int>(ExitCode::kPeerLost));
  EXPECT_LT(SteadyNow() - begin, kSoon);
  EXPECT_EQ(MessageOf<PeerLost>([&] { all.Barrier(); }), error);
}

TEST(LostRanksTest, OneThatEndsWithoutACallIsNamedAtOnce) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  const auto run = [&](int rank, int calls) {
    CommunicatorOptions options = Options(endpoints, rank);
    options.silence = kDeadline;
    Communicator all(options);
    for (int call = 0; call < calls; ++call) all.Barrier();
  };
  RankProcess shorter([&] { run(1, 2); });
  RankProcess hears([&] { run(2, 3); });
  const Time begin = SteadyNow();
  EXPECT_THAT(MessageOf<PeerLost>([&] { run(0, 3); }),
              AllOf(HasSubstr("rank 1 (" + endpoints[1] + ")"), HasSubstr("without call 3")));
  EXPECT_EQ(shorter.Wait(), 0);
  EXPECT_EQ(hears.Wait(), static_cast<int>(ExitCode::kPeerLost));
  EXPECT_LT(SteadyNow() - begin, kSoon);
}

// Rank 2 never comes. Of those that wait for it one has less patience.
TEST(LostRanksTest, OneThatGivesUpBeforeAllHaveComeTellsThoseThatHave) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  RankProcess hasty([&] {
    CommunicatorOptions options = Options(endpoints, 1);
    options.deadline = std::chrono::seconds(2);
    const Communicator all(options);
  });
  const Time begin = SteadyNow();
  EXPECT_THAT(MessageOf<DeadlineExceeded>([&] { Communicator(Options(endpoints, 0)); }),
              AllOf(HasSubstr("rank 1 (" + endpoints[1] + ") gave up: "),
                    HasSubstr("no word of rank 2 (" + endpoints[2] + ") for 2s")));
  EXPECT_EQ(hasty.Wait(), static_cast<int>(ExitCode::kDeadlineExceeded));
  EXPECT_LT(SteadyNow() - begin, kSoon);
}

// Ranks 0 and 2 can't reach each other, and rank 0 has less patience. Rank 1, which has met both,
// is in its first call then, or waits for a fourth rank, which never comes.
TEST(LostRanksTest, OneThatAnotherCantReachHearsByAThirdThatItGaveUp) {
  for (const int ranks : {3, 4}) {
    std::vector<std::string> endpoints = FreeEndpoints(ranks + 1);
    const std::string nowhere = endpoints.back();
    endpoints.pop_back();
    const auto run = [&](int rank, int unreachable, Duration deadline) {
      CommunicatorOptions options = Options(endpoints, rank);
      options.endpoints[unreachable] = nowhere;
      options.deadline = deadline;
      const Communicator all(options);
    };
    RankProcess between([&] {
      Communicator all(Options(endpoints, 1));
      all.Barrier();
    });
    RankProcess hasty([&] { run(0, 2, std::chrono::seconds(2)); });
    const Time begin = SteadyNow();
    EXPECT_THAT(MessageOf<DeadlineExceeded>([&] { run(2, 0, kDeadline); }),
                HasSubstr("rank 1 (" + endpoints[1] + ") gave up: rank 0 (" + endpoints[0] +
                          ") gave up: no word of rank 2 (" + nowhere + ")"));
    EXPECT_EQ(hasty.Wait(), static_cast<int>(ExitCode::kDeadlineExceeded));
    EXPECT_EQ(between.Wait(), static_cast<int>(ExitCode::kDeadlineExceeded));
    EXPECT_LT(SteadyNow() - begin, kSoon);
  }
}

// Rank 1 has heard the registration of the process that is no more, and that it failed, and has
// told it its own.
TEST(LostRanksTest, OneThatIsStartedAgainMeetsThoseWhoHaveMetItBefore) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  const auto run = [&](int rank) {
    CommunicatorOptions options = Options(endpoints, rank);
    options.deadline = kSoon;
    Communicator all(options);
    all.Barrier();
  };
  RankProcess patient([&] { run(1); });
  {
    OtherProcess earlier(HostAndPort::Parse(endpoints[0])->port, endpoints[1]);
    const std::optional<Envelope> registration = earlier.Hear();
    ASSERT_TRUE(registration);
    earlier.Say(MessageKind::kRegister, registration->body);
    earlier.Say(MessageKind::kFailed, {});
  }
  RankProcess again([&] { run(0); });
  // With the last one rank 1 begins the first call, and nobody may be started again any more.
  Sleep(std::chrono::seconds(2));
  run(2);
  EXPECT_EQ(patient.Wait(), 0);
  EXPECT_EQ(again.Wait(), 0);
}

TEST(LostRanksTest, OneThatIsStartedAgainBetweenCallsIsNamed) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  RankProcess first([&] {
    Communicator all(Options(endpoints, 0));
    all.Barrier();
    while (true) pause();
  });
  Communicator all(Options(endpoints, 1));
  all.Barrier();
  OtherProcess again(0, endpoints[1]);
  again.Say(MessageKind::kRegister, {});
  EXPECT_THAT(MessageOf<PeerLost>([&] { all.Barrier(); }),
              AllOf(HasSubstr("rank 0 (" + endpoints[0] + ") was started again"),
                    HasSubstr("barrier (call 2 of")));
}

// Where rank 0's next one registers, rank 1's last one is still there.
TEST(LostRanksTest, OneThatMakesTheNextCommunicatorSoonerMeetsTheNextOnesOfTheOthers) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  const auto run = [&](int rank, Duration pause) {
    for (int round = 0; round < 3; ++round) {
      CommunicatorOptions options = Options(endpoints, rank);
      options.deadline = kSoon;
      Communicator all(options);
      all.Barrier();
      all.Barrier();
      Sleep(pause);
    }
  };
  RankProcess later([&] { run(1, std::chrono::milliseconds(200)); });
  EXPECT_NO_THROW(run(0, Duration(0)));
  EXPECT_EQ(later.Wait(), 0);
}

// Rank 0 has ended; rank 1 is in a call that rank 0 has made, and hears of rank 2's end only.
TEST(LostRanksTest, WhatTheNextCommunicatorOfOneThatHasEndedSaysIsNotForThisOne) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  OtherProcess ended(HostAndPort::Parse(endpoints[0])->port, endpoints[1]);
  OtherProcess other(HostAndPort::Parse(endpoints[2])->port, endpoints[1], 2);
  std::unique_ptr<Communicator> all;
  std::thread meets([&] { all = std::make_unique<Communicator>(Options(endpoints, 1)); });
  for (OtherProcess* process : {&ended, &other}) {
    const std::optional<Envelope> registration = process->Hear();
    if (registration) process->Say(MessageKind::kRegister, registration->body);
  }
  meets.join();
  const auto failure = [](const std::string& reason) {
    wire::End end;
    end.set_exit_code(static_cast<int>(ExitCode::kPeerLost));
    end.set_reason(reason);
    return Payload::FromString(end.SerializeAsString());
  };
  ended.Say(MessageKind::kLeave, {}, 1);
  ended.Say(MessageKind::kFailed, failure("nobody has come to the next one"));
  ASSERT_TRUE(other.Hear()) << "the answer to its registration";
  other.Say(MessageKind::kHeartbeat, {});
  ASSERT_TRUE(other.Hear()) << "the answer, by when rank 1 has long taken what rank 0 has said";
  other.Say(MessageKind::kFailed, failure("it is this one's"));
  EXPECT_THAT(MessageOf<PeerLost>([&] { all->Barrier(); }),
              HasSubstr("rank 2 (" + endpoints[2] + ") gave up: it is this one's"));
}

// Before the first call, which takes it for one of another program.
TEST(LostRanksTest, OneThatIsStartedAgainOtherwiseEndsTheCommunicatorForAll) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  OtherProcess other(HostAndPort::Parse(endpoints[0])->port, endpoints[1]);
  std::unique_ptr<Communicator> all;
  std::thread meets([&] { all = std::make_unique<Communicator>(Options(endpoints, 1)); });
  const std::optional<Envelope> registration = other.Hear();
  if (registration) other.Say(MessageKind::kRegister, registration->body);
  meets.join();
  ASSERT_TRUE(other.Hear()) << "the answer";
  other.Say(MessageKind::kRegister, {});
  ASSERT_TRUE(other.Hear()) << "the answer, which is sent when the program has what it answers";
  const std::string error = MessageOf<ConfigError>([&] { all->Barrier(); });
  EXPECT_THAT(error, HasSubstr("rank 0 (" + endpoints[0] + ") was started with another number"));
  EXPECT_EQ(MessageOf<ConfigError>([&] { all->Barrier(); }), error);
  const std::optional<Envelope> failed = other.Hear();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, MessageKind::kFailed);
}

// Rank 2 gives nothing to the others, who wait for it when they have each other's blocks.
TEST(LostRanksTest, OneWithoutABlockIsAwaitedWithinTheDeadlineOfTheCall) {
  constexpr Duration kThisDeadline = std::chrono::seconds(3);
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  const auto meet = [&](int rank) {
    CommunicatorOptions options = Options(endpoints, rank);
    options.deadline = kThisDeadline;
    return Communicator(options);
  };
  const auto gather = [](Communicator& all) {
    std::vector<float> floats(2);
    all.AllGather(floats, {1, 1, 0});
  };
  RankProcess late([&] {
    Communicator all = meet(1);
    all.Barrier();
    Sleep(kThisDeadline - std::chrono::milliseconds(500));
    gather(all);
  });
  RankProcess missing([&] {
    Communicator all = meet(2);
    all.Barrier();
    while (true) pause();
  });
  Communicator all = meet(0);
  all.Barrier();
  const Time begin = SteadyNow();
  EXPECT_THAT(MessageOf<DeadlineExceeded>([&] { gather(all); }), HasSubstr("rank 2"));
  EXPECT_LT(SteadyNow() - begin, kThisDeadline + std::chrono::seconds(2))
      << "as communicator.h says";
}

// Its lanes answer for it.
TEST(LostRanksTest, OneThatDoesSomethingElseForLongIsNotLost) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  RankProcess busy([&] {
    Communicator all(Options(endpoints, 1));
    Sleep(3 * kSilence);
    all.Barrier();
  });
  Communicator all(Options(endpoints, 0));
  all.Barrier();
  EXPECT_EQ(busy.Wait(), 0);
}

// Those that it waits for have answered, which it has not read yet.
TEST(LostRanksTest, WhoWasStoppedItselfHasLostNobody) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  RankProcess stopped([&] {
    Communicator all(Options(endpoints, 1));
    all.Barrier();
    all.Barrier();
  });
  Communicator all(Options(endpoints, 0));
  all.Barrier();
  Sleep(kSilence / 4);  // it waits now
  stopped.Signal(SIGSTOP);
  Sleep(2 * kSilence);
  stopped.Signal(SIGCONT);
  Sleep(kSilence / 2);  // it has looked
  all.Barrier();
  EXPECT_EQ(stopped.Wait(), 0);
}

// Who has received all of a call may end, while others still wait for their part of it.
TEST(LostRanksTest, OneThatEndsAfterTheLastCallIsMissedByNobody) {
  constexpr int kRanks = 4;
  for (int round = 0; round < 5; ++round) {
    const std::vector<std::string> endpoints = FreeEndpoints(kRanks);
    const auto run = [&](int rank) {
      Communicator all(Options(endpoints, rank));
      std::vector<float> floats(1'000'000, 1);
      all.AllReduce(floats, {.scheme = CollectiveScheme::kRing});
    };
    RankProcess first([&] { run(1); });
    RankProcess second([&] { run(2); });
    RankProcess third([&] { run(3); });
    run(0);
    EXPECT_EQ(first.Wait(), 0);
    EXPECT_EQ(second.Wait(), 0);
    EXPECT_EQ(third.Wait(), 0);
  }
}

}  // namespace
}  // namespace poseidon
