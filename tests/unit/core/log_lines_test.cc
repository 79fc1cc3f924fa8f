#include "core/files/log_lines.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

class LogLinesTest : public testing::Test {
 protected:
  std::string Log(const std::string& text) {
    std::ofstream(directory_.Path("log"), std::ios::binary) << text;
    return directory_.Path("log");
  }
  TemporaryDirectory directory_;
};

TEST_F(LogLinesTest, LastWordsAreThoseOfGlogTheRuntimeAndLibraries) {
  const auto words = [this](const std::string& log) { return LastWords(Log(log)); };
  EXPECT_EQ(words("I1122 10:00:00.0 7 a.cc:1] Finished\nlast line\n"), "");
  EXPECT_EQ(words("F20261122 10:00:00.0 7 a.cc:1] no\n*** Check failure stack trace: ***\n"),
            "F20261122 10:00:00.0 7 a.cc:1] no");
  EXPECT_EQ(words("terminate called after throwing an instance of 'std::bad_alloc'\n"
                  "  what():  std::bad_alloc\n"),
            "terminate called after throwing an instance of 'std::bad_alloc' what():  "
            "std::bad_alloc");
  for (const std::string line :
       {"worker: a.cc:12: int main(): Assertion `a == b' failed.",
        "Assertion failed: !_more (src/fq.cpp:106)", "Bad file descriptor (src/epoll.cpp:100)",
        "free(): invalid pointer", "double free or corruption (!prev)",
        "pure virtual method called", "corrupted size vs. prev_size",
        "malloc(): unaligned tcache chunk detected",
        "Fatal glibc error: pthread_mutex_lock.c:450: assertion failed: e != ESRCH",
        "*** stack smashing detected ***: terminated"}) {
    EXPECT_EQ(words("I1122 10:00:00.0 7 a.cc:1] Started\n" + line + "\n"), line);
  }
  EXPECT_EQ(words("pure virtual method called\nterminate called without an active exception\n"),
            "pure virtual method called; terminate called without an active exception");
  EXPECT_EQ(LastWords(directory_.Path("none")), "");
}

// A progress bar is one line to the C library, of any length.
TEST_F(LogLinesTest, ALineMayBeOfAnyLength) {
  const std::string words = "F20261128 10:00:00.0 7 a.cc:1] no";
  for (const char* between : {"", "\r", "\n"}) {
    const std::string bar(200'000, 'x');
    EXPECT_EQ(LastWords(Log(bar + between + "\n" + words + "\n")), words);
    EXPECT_EQ(LastWords(Log(bar + "\r" + words + between)), words);
    EXPECT_EQ(LastWords(Log(words + "\n" + bar + between)), words);
    EXPECT_EQ(LastLines(Log("one\n" + bar + between), 2),
              "one\n" + bar.substr(0, kMostLineBytes) + "\n");
  }
}

TEST_F(LogLinesTest, OfALongLogTheEndIsRead) {
  const std::string line(99, 'x');
  std::string log;
  for (size_t bytes = 0; bytes < 2 * kMostLogBytes; bytes += line.size() + 1) log += line + "\n";
  EXPECT_EQ(LastLines(Log(log + "\nlast\n\n"), 2), line + "\nlast\n");
  EXPECT_LT(LastLines(Log(log), log.size()).size(), kMostLogBytes + 1);
}

TEST_F(LogLinesTest, WhatIsNotThereSaysNothing) {
  EXPECT_EQ(LastLines(directory_.Path("none"), 2), "");
  EXPECT_EQ(LastLines(directory_.Path(""), 2), "");
  EXPECT_EQ(LastLines(Log(""), 2), "");
}

}  // namespace
}  // namespace poseidon
