#include "core/process/bounded_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <ostream>
#include <sstream>
#include <string>

#include "core/files/regular_file.h"
#include "core/steady_now.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class BoundedOutputTest : public testing::Test {
 protected:
  BoundedOutputTest() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    fcntl(ends_[1], F_SETPIPE_SZ, 4096);
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~BoundedOutputTest() override {
    CloseReader();
    close(ends_[1]);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // All that is in the pipe now.
  std::string Read() const {
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = read(ends_[0], bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<size_t>(count));
    }
    return text;
  }

  int ends_[2] = {-1, -1};
  std::ostringstream stream_;
};

TEST_F(BoundedOutputTest, WhatIsTakenIsWhole) {
  const BoundedOutput output(stream_, ends_[1]);
  std::string all;
  std::string taken;
  for (int line = 0; line < 1000; ++line) {
    const std::string text = "line " + std::to_string(line) + std::string(line, 'x');
    stream_ << text << std::endl;
    all += text + "\n";
    taken += Read();
  }
  EXPECT_EQ(taken, all);
  EXPECT_EQ(stream_.str(), "");
}

TEST_F(BoundedOutputTest, NobodyIsWaitedForLongNorTwice) {
  const BoundedOutput output(stream_, ends_[1]);
  const Time begin = SteadyNow();
  stream_ << "first" << std::endl;
  for (int line = 0; line < 1000; ++line) stream_ << std::string(100, 'x') << std::endl;
  EXPECT_LT(SteadyNow() - begin, Seconds(10));
  EXPECT_THAT(Read(), StartsWith("first\nxxx"));
  stream_ << "last" << std::endl;
  EXPECT_THAT(Read(), testing::AllOf(HasSubstr(" bytes were not shown, as nobody took them)\n"),
                                     EndsWith(")\nlast\n")));
  stream_ << "more" << std::endl;
  EXPECT_EQ(Read(), "more\n");
}

TEST_F(BoundedOutputTest, AReaderThatIsGoneIsNoFailure) {
  const auto before = signal(SIGPIPE, SIG_IGN);
  const BoundedOutput output(stream_, ends_[1]);
  CloseReader();
  stream_ << std::string(10'000, 'x') << std::endl;
  EXPECT_TRUE(stream_.good());
  signal(SIGPIPE, before);
}

TEST_F(BoundedOutputTest, AFileHasAllOfIt) {
  const TemporaryDirectory directory;
  const int file = open(directory.Path("file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "before\n", 7), 7);
  {
    const BoundedOutput output(stream_, file);
    stream_ << "text" << std::endl << std::string(10'000, 'x');
  }
  close(file);
  EXPECT_EQ(ReadRegularFile(directory.Path("file"), ExitCode::kFailure),
            "before\ntext\n" + std::string(10'000, 'x'));
}

// As on a disk of which somebody makes room again.
TEST_F(BoundedOutputTest, AFileThatHadNoRoomForAWhileTellsWhatItLacks) {
  const TemporaryDirectory directory;
  const int file = open(directory.Path("file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const BoundedOutput output(stream_, file);
  stream_ << "first" << std::endl;
  // Beyond this limit a write fails, once the signal is ignored.
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  rlimit limit = usual;
  limit.rlim_cur = 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  stream_ << "second" << std::endl << "third" << std::endl;
  setrlimit(RLIMIT_FSIZE, &usual);
  signal(SIGXFSZ, before);
  stream_ << "last" << std::endl;
  close(file);
  EXPECT_TRUE(stream_.good());
  EXPECT_EQ(ReadRegularFile(directory.Path("file"), ExitCode::kFailure),
            "first\nseco\n(9 bytes were not written: File too large)\nlast\n");
}

TEST_F(BoundedOutputTest, TheDescriptorStaysBlockingForOthers) {
  const BoundedOutput output(stream_, ends_[1]);
  stream_ << "text" << std::endl;
  EXPECT_EQ(fcntl(ends_[1], F_GETFL) & O_NONBLOCK, 0);
}

}  // namespace
}  // namespace poseidon
