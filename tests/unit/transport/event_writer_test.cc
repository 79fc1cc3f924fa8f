#include "transport/membership/event_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/end_deadline.h"
#include "core/files/regular_file.h"
#include "core/steady_now.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/transport/zmq_testing.h"
#include "transport/events/event_file.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr NodeId kWriting{Role::kWorker, 0};

Envelope EndOfJob(ExitCode code, const std::string& reason) {
  return MakeEnvelope(MessageKind::kEnd, Here(kApplicationLane), MakeEnd(code, reason));
}

// A disk that does not answer whoever opens the file of kWriting's events, until it is destroyed:
// to open a pipe that nobody reads takes as long.
class SilentDisk {
 public:
  explicit SilentDisk(const TemporaryDirectory& directory)
      : events_(directory.Path("worker-0.events.json")),
        pipe_(events_ + ".tmp" + std::to_string(getpid())) {
    if (mkfifo(pipe_.c_str(), 0600) != 0) throw std::runtime_error("can't make " + pipe_);
  }
  ~SilentDisk() {
    const int reader = open(pipe_.c_str(), O_RDONLY | O_NONBLOCK);
    EXPECT_TRUE(Eventually([this] { return std::filesystem::exists(events_); }));
    close(reader);
  }
  SilentDisk(const SilentDisk&) = delete;
  SilentDisk& operator=(const SilentDisk&) = delete;

 private:
  const std::string events_;
  const std::string pipe_;
};

// In a process of its own, as it ends.
TEST(EventWriterDeathTest, WhoeverHearsOfTheEndOnADiskThatDoesNotAnswerIsEnded) {
  const TemporaryDirectory directory;
  EXPECT_EXIT(
      {
        EndDeadline deadline("test", std::chrono::milliseconds(20));
        ZmqRuntime runtime(kWriting, Lanes(1));
        EventWriter writer(runtime, "host", directory.path(),
                           [&deadline](const Error& error) { deadline.Start(error); });
        const SilentDisk disk(directory);
        writer.Observe(EndOfJob(ExitCode::kPeerLost, "lost worker 1"));
        std::this_thread::sleep_for(kPatience);  // as in a snapshot
        _exit(2);
      },
      testing::ExitedWithCode(static_cast<int>(ExitCode::kPeerLost)), "test: lost worker 1; ");
}

TEST(EventWriterTest, ADiskThatDoesNotAnswerKeepsTheEndFromNobody) {
  const TemporaryDirectory directory;
  ZmqRuntime runtime(kWriting, Lanes(1));
  const auto writer = std::make_shared<EventWriter>(runtime, "host", directory.path());
  runtime.Observe([writer](const Envelope& envelope) { writer->Observe(envelope); });
  auto lane = std::make_unique<FunctionActor>();
  lane->on_start = [](Outbox& outbox) {
    outbox.Send(EndOfJob(ExitCode::kPeerLost, "lost worker 1"));
  };
  runtime.Attach(kControlLane, std::move(lane));
  const SilentDisk disk(directory);
  runtime.Start();
  const auto end = runtime.mailbox().Take(kPatience);
  ASSERT_TRUE(end) << "the program does not hear of the end";
  EXPECT_EQ(end->kind, MessageKind::kEnd);
  const Time begin = SteadyNow();
  writer->Write(ExitCode::kPeerLost, "lost worker 1");
  runtime.Stop();
  writer->Write(ExitCode::kPeerLost, "lost worker 1");
  EXPECT_LT(SteadyNow() - begin, kPatience);
}

// What the lane has begun to write is there when the program has said why it ends, or is done with
// the writer.
TEST(EventWriterTest, WhatIsBeingWrittenIsWaitedFor) {
  const ZmqRuntime runtime(kWriting, Lanes(1));
  for (const bool says_why : {true, false}) {
    const TemporaryDirectory directory;
    const std::string events = directory.Path("made/worker-0.events.json");
    auto writer = std::make_unique<EventWriter>(runtime, "host", directory.Path("made"));
    writer->Observe(EndOfJob(ExitCode::kPeerLost, "lost worker 1"));
    if (says_why) {
      writer->Write(ExitCode::kFailure, "what follows from that");
    } else {
      writer.reset();
    }
    EXPECT_EQ(ParseEventFile(ReadRegularFile(events, ExitCode::kFailure), events).reason,
              "lost worker 1");
  }
}

TEST(EventWriterTest, FailuresAreToldAlsoWhereNothingIsWritten) {
  const ZmqRuntime runtime(kWriting, Lanes(1));
  std::vector<std::string> told;
  EventWriter writer(runtime, "host", "",
                     [&told](const Error& error) { told.emplace_back(error.what()); });
  writer.Observe(EndOfJob(ExitCode::kSuccess, "done"));
  writer.Write(ExitCode::kSuccess, "");
  EXPECT_TRUE(told.empty());
  writer.Write(ExitCode::kInterrupted, "interrupted by a signal");
  writer.Observe(EndOfJob(ExitCode::kPeerLost, "lost worker 1"));
  EXPECT_EQ(told, (std::vector<std::string>{"interrupted by a signal", "lost worker 1"}));
}

}  // namespace
}  // namespace poseidon
