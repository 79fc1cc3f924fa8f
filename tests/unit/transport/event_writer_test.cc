#include "transport/membership/event_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "core/end_deadline.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/transport/zmq_testing.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr NodeId kWriting{Role::kWorker, 0};

Envelope EndOfJob(ExitCode code, const std::string& reason) {
  return MakeEnvelope(MessageKind::kEnd, Here(kApplicationLane), MakeEnd(code, reason));
}

// In a process of its own, as it ends.
TEST(EventWriterDeathTest, WhoeverHearsOfTheEndOnADiskThatDoesNotAnswerIsEnded) {
  const TemporaryDirectory directory;
  EXPECT_EXIT(
      {
        EndDeadline deadline("test", std::chrono::milliseconds(20));
        ZmqRuntime runtime(kWriting, Lanes(1));
        EventWriter writer(runtime, "host", directory.path(),
                           [&deadline](const Error& error) { deadline.Start(error); });
        // To open a pipe that nobody reads takes as long as to open a file on such a disk.
        const std::string file = "worker-0.events.json.tmp" + std::to_string(getpid());
        if (mkfifo(directory.Path(file).c_str(), 0600) != 0) _exit(1);
        writer.Observe(EndOfJob(ExitCode::kPeerLost, "lost worker 1"));
        _exit(2);
      },
      testing::ExitedWithCode(static_cast<int>(ExitCode::kPeerLost)), "test: lost worker 1; ");
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
