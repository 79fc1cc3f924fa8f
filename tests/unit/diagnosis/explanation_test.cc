#include "diagnosis/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"

namespace poseidon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using State = EventFile::Connection::State;

constexpr NodeId kScheduler{Role::kScheduler, 0};
constexpr NodeId kServer{Role::kServer, 0};
constexpr NodeId kCulprit{Role::kWorker, 1};
constexpr Time kEnd = Seconds(100);

NodeEvent Began(Activity activity, Time time) {
  NodeEvent event;
  event.time = time;
  event.kind = static_cast<int>(activity);
  event.iteration = 17;
  return event;
}

NodeEvent Arrived(Time time, const NodeId& from = kCulprit,
                  MessageKind kind = MessageKind::kGradient) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.iteration = 16;
  return FrameEvent(NodeEvent::Type::kArrived, time, envelope, {from, kFirstDataLane}, 1);
}

EventFile FileOf(const NodeId& node, const std::string& reason) {
  EventFile file;
  file.node = node;
  file.host = node == kCulprit ? "node1" : "node0";
  file.clock = file.host;
  file.written = kEnd;
  file.exit_code = 3;
  file.reason = reason;
  file.buckets = {"fc"};
  file.available_memory = int64_t{8} << 30;
  return file;
}

// A scheduler and a server, which has last heard of worker 1 three seconds before the end.
JobFiles JobThatEndedWith(const std::string& reason, int code = 3) {
  JobFiles job;
  EventFile server = FileOf(kServer, reason);
  server.lanes = {{kFirstDataLane, {Arrived(kEnd - Seconds(3))}}};
  job.events = {FileOf(kScheduler, reason), server};
  job.summary = {"test", code, reason};
  job.clocks.resize(3);
  return job;
}

EventFile::Connection To(const NodeId& node, State state, int64_t unconfirmed = 0,
                         int retransmissions = 0) {
  EventFile::Connection connection;
  connection.to = {node, kFirstDataLane};
  connection.state = state;
  connection.unconfirmed_bytes = unconfirmed;
  connection.retransmissions = retransmissions;
  return connection;
}

const std::string kSilent = "lost worker 1 (node1, process 4711), last heard 3 s ago";
const std::string kStalled =
    "server 0 (node0, process 4712) has waited 300 s for the gradient of layer fc, iteration 17, "
    "from worker 1 (node1, process 4711), whose heartbeat still arrives "
    "(communication.stall_deadline_seconds)";

void ExpectCause(const JobFiles& job, Cause cause) {
  const Explanation why = Explain(job);
  EXPECT_STREQ(NameOf(why.cause), NameOf(cause)) << ExplanationText(why);
  EXPECT_EQ(why.first, kCulprit) << ExplanationText(why);
  EXPECT_FALSE(why.evidence.empty());
  const auto json = nlohmann::json::parse(ExplanationJson(why));
  EXPECT_EQ(json.at("cause"), NameOf(cause));
  EXPECT_EQ(json.at("first"), "worker 1");
}

TEST(Explanation, SilentAndItsConnectionsAreClosed) {
  JobFiles job = JobThatEndedWith(kSilent);
  job.events[1].connections = {To(kCulprit, State::kNone)};
  ExpectCause(job, Cause::kKilled);
  EXPECT_EQ(Explain(job).last_message,
            "The last message exchanged with worker 1 was the gradient of fc, iteration 16, from "
            "worker 1 to server 0, 3.0 s before the job's end.");
}

TEST(Explanation, TheLastMessageIsANoun) {
  JobFiles job = JobThatEndedWith(kSilent);
  for (const auto& [kind, text] : {std::pair(MessageKind::kFailed, "the word of its failure from "),
                                   std::pair(MessageKind::kFinished, "the final report from "),
                                   std::pair(MessageKind::kProgress, "the progress from ")}) {
    job.events[1].lanes[0].events = {Arrived(kEnd, kCulprit, kind)};
    EXPECT_THAT(Explain(job).last_message, HasSubstr(text));
  }
}

TEST(Explanation, SilentAndItsMachineConfirms) {
  JobFiles job = JobThatEndedWith(kSilent);
  job.events[1].connections = {To(kCulprit, State::kEstablished)};
  ExpectCause(job, Cause::kStopped);
  // A full window is no cut: the machine answers every probe of it.
  job.events[1].connections[0].unconfirmed_bytes = 1000;
  job.events[1].connections[0].window_closed = true;
  ExpectCause(job, Cause::kStopped);
}

TEST(Explanation, SilentAndItsMachineConfirmsNothing) {
  JobFiles job = JobThatEndedWith(kSilent);
  job.events[0].connections = {To(kCulprit, State::kEstablished, 64, 1)};
  job.events[1].connections = {To(kCulprit, State::kEstablished)};
  ExpectCause(job, Cause::kNetworkCut);
}

TEST(Explanation, SilentAndLivedOn) {
  JobFiles job = JobThatEndedWith(kSilent);
  EventFile culprit = FileOf(kCulprit, "lost the scheduler at tcp://node0:9700: no heartbeat");
  std::vector<NodeEvent> heartbeats;
  for (int i = 0; i < 50; ++i)
    heartbeats.push_back(Arrived(kEnd - Seconds(5) + Seconds(0.1 * i), kServer));
  culprit.lanes = {{kHeartbeatLane, heartbeats}};
  job.events.push_back(culprit);
  job.events[1].connections = {To(kCulprit, State::kEstablished)};
  ExpectCause(job, Cause::kNetworkCut);
  // The same, but it saw nothing in between.
  auto& own = job.events[2].lanes[0].events;
  own.erase(own.begin() + 5, own.begin() + 45);
  ExpectCause(job, Cause::kStopped);
}

TEST(Explanation, KilledByTheLauncherSAccountOrForMemory) {
  JobFiles job =
      JobThatEndedWith("lost worker 1 (node0, process 4711): it was killed by signal 9 (SIGKILL)");
  ExpectCause(job, Cause::kKilled);
  job.events[1].out_of_memory_kills = 1;  // of the same machine
  ExpectCause(job, Cause::kOutOfMemory);
  job.summary->reason =
      "lost worker 1 (node0, process 4711): it was killed by signal 6 (SIGABRT): Check failed";
  ExpectCause(job, Cause::kCrashed);
  // ssh has given up before the heartbeat's deadline.
  ExpectCause(JobThatEndedWith("lost worker 1 (node1, process 4711): it has lost its connection: "
                               "Timeout, server node1 not responding."),
              Cause::kNetworkCut);
}

TEST(Explanation, LostTooOften) {
  const std::string often =
      "worker 1 was lost 4 times in a row without an iteration done in between "
      "(recovery.give_up_after): ";
  ExpectCause(JobThatEndedWith(often + "its process was killed by signal 9 (SIGKILL)"),
              Cause::kKilled);
  JobFiles job = JobThatEndedWith(often + "no heartbeat for 9 s");
  job.events[1].connections = {To(kCulprit, State::kEstablished)};
  ExpectCause(job, Cause::kStopped);
}

// The scheduler tells all others with its own code and reason, which they write down.
TEST(Explanation, WhoWasOnlyToldOfTheEndIsNotBlamed) {
  for (const auto& [reason, code, cause] :
       {std::tuple("it was interrupted", 130, Cause::kInterrupted),
        std::tuple("can't write to out/scheduler.journal: No space left on device", 1,
                   Cause::kFullDisk)}) {
    JobFiles job = JobThatEndedWith(reason, code);
    for (EventFile& file : job.events) file.exit_code = code;
    for (const bool with_summary : {true, false}) {
      if (!with_summary) job.summary.reset();
      const Explanation why = Explain(job);
      EXPECT_STREQ(NameOf(why.cause), NameOf(cause));
      EXPECT_EQ(why.first, std::nullopt) << ExplanationText(why);
    }
  }
}

TEST(Explanation, OwnWords) {
  const std::string failed = "worker 1 (node1, process 4711) failed: ";
  for (const auto& [words, cause] :
       {std::pair("can't write a.solverstate.tmp1: No space left on device", Cause::kFullDisk),
        std::pair("the loss of worker 1 is nan in iteration 41", Cause::kDiverged),
        std::pair("the loss of worker 1 is -inf in iteration 41", Cause::kDiverged),
        std::pair("not enough memory for this server's share", Cause::kOutOfMemory),
        std::pair(
            "cuda device 0 has no memory left: CUDA out of memory. Tried to allocate 2.00 GiB",
            Cause::kOutOfMemory),
        std::pair("CUDA can't find 512 MiB of memory on cuda device 0 (H200): out of memory",
                  Cause::kOutOfMemory),
        std::pair("CUDA can't pin 4 MiB of the host's memory: out of memory", Cause::kOutOfMemory),
        std::pair("the host has no 4 MiB of memory left", Cause::kOutOfMemory),
        std::pair("interrupted by a signal", Cause::kInterrupted),
        std::pair("no such thing", Cause::kFailed)}) {
    ExpectCause(JobThatEndedWith(failed + words, 1), cause);
  }
}

TEST(Explanation, HeldUpByComputingOrByADisk) {
  JobFiles job = JobThatEndedWith(kStalled, 4);
  ExpectCause(job, Cause::kSlowWorker);
  EventFile culprit = FileOf(kCulprit, kStalled);
  culprit.lanes = {{kApplicationLane, {Began(Activity::kComputing, kEnd - Seconds(301))}}};
  job.events.push_back(culprit);
  ExpectCause(job, Cause::kSlowWorker);
  EXPECT_THAT(Explain(job).evidence, Contains(HasSubstr("computing in iteration 17 for 301.0 s")));
  job.events[2].lanes[0].events = {Began(Activity::kSnapshot, kEnd - Seconds(301))};
  ExpectCause(job, Cause::kSlowDisk);
}

TEST(Explanation, WithoutTheSchedulerItWasTheScheduler) {
  JobFiles job = JobThatEndedWith("interrupted by a signal");
  job.summary.reset();
  job.events.erase(job.events.begin());
  job.events[0].exit_code = 130;
  job.events[0].connections = {To(kScheduler, State::kNone)};
  const Explanation why = Explain(job);
  EXPECT_EQ(why.first, kScheduler);
  EXPECT_STREQ(NameOf(why.cause), "killed");
}

TEST(Explanation, WithoutAnyAccountTheSchedulerSLogIsQuoted) {
  JobFiles job;
  job.logs["scheduler"] = "starting\ncannot listen on port 9700: Address already in use\n";
  const Explanation why = Explain(job);
  EXPECT_THAT(why.evidence, ElementsAre("The log of the scheduler, logs/scheduler.log, ends with: "
                                        "starting\ncannot listen on port "
                                        "9700: Address already in use"));
  EXPECT_TRUE(nlohmann::json::parse(ExplanationJson(why)).at("exit_code").is_null());
  job.monitor = "http://127.0.0.1:9780/";
  EXPECT_THAT(Explain(job).evidence, Contains(HasSubstr("It may run still: its monitor is to be "
                                                        "found at http://127.0.0.1:9780/")));
}

// It has left its events and is gone, and the job goes on with another process in its place.
TEST(Explanation, WhoTheJobHasGoneOnWithoutTellsNothingOfItsEnd) {
  JobFiles job;
  job.events = {FileOf(kCulprit,
                       "the job goes on without this node (no heartbeat for 9 s); start "
                       "it again")};
  job.events[0].exit_code = static_cast<int>(ExitCode::kGivenUp);
  job.clocks.resize(1);
  job.monitor = "http://127.0.0.1:9780/";
  const Explanation why = Explain(job);
  EXPECT_EQ(why.exit_code, std::nullopt);
  EXPECT_EQ(why.first, std::nullopt) << ExplanationText(why);
  ASSERT_FALSE(why.evidence.empty());
  EXPECT_THAT(why.evidence[0], HasSubstr("It may run still: its monitor is to be found at"));
  // Another, whose process was killed, may have named a suspect before.
  job.events.push_back(FileOf(kServer, kSilent));
  job.clocks.resize(2);
  EXPECT_THAT(Explain(job).evidence.at(0), HasSubstr("It may run still"));
  EXPECT_EQ(Explain(job).first, kCulprit);
}

// Each process that takes a dead one's place has a log of its own.
TEST(Explanation, OfAProcessThatCameAgainAndAgainTheLastLogIsQuoted) {
  JobFiles job = JobThatEndedWith(
      "worker 1 was lost 4 times in a row without an iteration done in between "
      "(recovery.give_up_after): it was killed by signal 6 (SIGABRT)");
  for (const char* log : {"worker-1", "worker-1.restart-2", "worker-1.restart-10", "worker-10"}) {
    job.logs[log] = std::string("words of ") + log + "\n";
  }
  ExpectCause(job, Cause::kCrashed);
  EXPECT_THAT(Explain(job).evidence,
              ElementsAre("Its process was killed by signal 6 (SIGABRT).",
                          "The log of worker 1, logs/worker-1.restart-10.log, ends with: words of "
                          "worker-1.restart-10"));
}

TEST(Explanation, WhoNeverJoinedIsNamedWithItsLog) {
  const std::string after = " after 60 s (cluster.join_deadline_seconds); start them";
  for (const std::string who :
       {"worker 1", "worker 1 and server 0", "2 workers (ranks 1, 3) and server 0"}) {
    ExpectCause(JobThatEndedWith("still missing " + who + after, 4), Cause::kNeverJoined);
  }
  EXPECT_EQ(Explain(JobThatEndedWith("still missing 3 servers (ranks 0, 1, 2)" + after, 4)).first,
            kServer);
  JobFiles job = JobThatEndedWith("still missing worker 1" + after, 4);
  EXPECT_THAT(Explain(job).evidence,
              ElementsAre(HasSubstr("There is no log of worker 1 here"), HasSubstr("`poseidon "
                                                                                   "doctor`")));
  EXPECT_THAT(ExplanationText(Explain(job)),
              StartsWith("Likely cause: never joined (worker 1).\n"));
  job.logs["worker-1"] = "asks the scheduler at tcp://node0:9700\n";
  EXPECT_EQ(Explain(job).evidence.at(0),
            "The log of worker 1, logs/worker-1.log, ends with: asks the scheduler at "
            "tcp://node0:9700");
  job.logs["worker-1"] = "";
  EXPECT_EQ(Explain(job).evidence.at(0),
            "Its log, logs/worker-1.log, is empty: it was started and has said nothing.");
}

TEST(Explanation, WhatEndedWellNeedsNone) {
  EXPECT_EQ(ExplanationText(Explain(JobThatEndedWith("", 0))), "The job ended well.\n");
}

TEST(Explanation, WhatNothingTellsIsUnknownOrFailed) {
  JobFiles job;
  EXPECT_STREQ(NameOf(Explain(job).cause), "unknown");
  // A file that somebody has changed.
  for (const char* const reason : {"lost worker 99999999999999999999, last heard 3 s ago",
                                   "worker-99999999999999999999: gone", "lost worker"}) {
    EXPECT_EQ(Explain(JobThatEndedWith(reason)).first, std::nullopt) << reason;
  }
}

}  // namespace
}  // namespace poseidon
