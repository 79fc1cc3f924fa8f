#include "core/process/counting_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>

namespace poseidon {
namespace {

constexpr std::chrono::nanoseconds kNoSilence{0};

TEST(CountingLine, IsOneOnATerminalAndTenInALog) {
  for (const bool is_terminal : {false, true}) {
    std::ostringstream out;
    CountingLine line("record", kNoSilence, out, is_terminal);
    for (int64_t done = 1; done <= 5000; ++done) line.Show(done, 5000);
    const std::string said = out.str();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), is_terminal ? 1 : 10);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\r'), is_terminal ? 1000 : 0);
    EXPECT_TRUE(said.ends_with("record 5000/5000\n")) << said;
  }
}

TEST(CountingLine, LeavesTheNextLineToWhatFollows) {
  std::ostringstream out;
  {
    CountingLine line("batch", kNoSilence, out, true);
    line.Show(1, 3);
    EXPECT_EQ(out.str(), "\rbatch 1/3");
  }
  EXPECT_EQ(out.str(), "\rbatch 1/3\n");
}

TEST(CountingLine, SaysNothingOfWhatIsShort) {
  std::ostringstream out;
  CountingLine line("record", std::chrono::hours(1), out, false);
  line.Show(1, 1);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace poseidon
