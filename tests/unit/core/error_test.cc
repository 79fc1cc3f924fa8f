#include "core/error.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

TEST(Error, LocationLeavesOutWhatIsUnknown) {
  EXPECT_EQ((Location{"job.prototxt", 3, 14}).ToString(), "job.prototxt:3:14");
  EXPECT_EQ((Location{"job.prototxt", 3}).ToString(), "job.prototxt:3");
  EXPECT_EQ((Location{"job.prototxt"}).ToString(), "job.prototxt");
  // A column alone says nothing.
  EXPECT_EQ((Location{"job.prototxt", 0, 14}).ToString(), "job.prototxt");
}

TEST(Error, ConfigErrorBeginsWithItsPlace) {
  EXPECT_STREQ(ConfigError("no net given").what(), "no net given");
  EXPECT_STREQ(ConfigError({"solver.prototxt", 2, 1}, "no net given").what(),
               "solver.prototxt:2:1: no net given");
}

// The codes are an interface: scripts and schedulers rely on them.
TEST(Error, ExitCodesNeverChange) {
  const auto code = [](const Error& error) { return static_cast<int>(error.exit_code()); };
  EXPECT_EQ(code(Error(ExitCode::kFailure, "")), 1);
  EXPECT_EQ(code(ConfigError("")), 2);
  EXPECT_EQ(code(PeerLost("")), 3);
  EXPECT_EQ(code(DeadlineExceeded("")), 4);
  EXPECT_EQ(code(Error(ExitCode::kRefused, "")), 5);
  EXPECT_EQ(code(DataError("")), 6);
  EXPECT_EQ(code(ProtocolError("")), 7);
  EXPECT_EQ(code(Error(ExitCode::kInterrupted, "")), 130);
}

TEST(Error, IsCaughtAsItsBase) {
  try {
    throw PeerLost("worker 3 (10.0.0.3:71) is gone");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kPeerLost);
    EXPECT_STREQ(error.what(), "worker 3 (10.0.0.3:71) is gone");
  }
}

}  // namespace
}  // namespace poseidon
