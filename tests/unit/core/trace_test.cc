// What a trace writes, for those who read it: Chrome's trace format.
#include "core/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/steady_now.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  nlohmann::json Written(const Trace& trace) {
    const std::string path = directory_.Path("trace.json");
    trace.Write(path);
    std::ifstream file(path);
    return nlohmann::json::parse(file)["traceEvents"];
  }

 private:
  TemporaryDirectory directory_;
};

double WallMicroseconds() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST_F(TraceTest, TimesAreTheWallClocks) {
  const double before = WallMicroseconds();
  Trace trace("worker 0", 10);
  const Time begin = SteadyNow();
  trace.Add({"forward", "fc", "compute", 3, begin, begin + std::chrono::milliseconds(2)});
  const nlohmann::json event = Written(trace).back();
  // Far less than the clocks' epochs differ by; a clock that is set in between may step.
  constexpr double kSecond = 1e6;
  EXPECT_NEAR(event["ts"].get<double>(), before, 5 * kSecond);
  EXPECT_NEAR(event["dur"].get<double>(), 2000, 1e-6);
  EXPECT_EQ(event["name"], "forward fc");
  EXPECT_FALSE(event["args"].contains("bytes"));
}

TEST_F(TraceTest, SaysBytesAndPhasesWithoutALayer) {
  Trace trace("worker 0", 10);
  trace.Add({"test", "", "compute", 3, Seconds(1), Seconds(2)});
  trace.Add({"send", "fc", "lane 0", 3, Seconds(1), Seconds(1), 4000});
  const nlohmann::json events = Written(trace);
  const nlohmann::json& send = events.back();
  EXPECT_EQ(send["args"]["bytes"], 4000);
  EXPECT_EQ(send["ph"], "i");
  bool tested = false;
  for (const nlohmann::json& event : events) tested |= event["name"] == "test";
  EXPECT_TRUE(tested);
}

TEST_F(TraceTest, ProcessesOfDifferentMachinesDiffer) {
  const auto process = [this](const std::string& name) {
    return Written(Trace(name, 1))[0]["pid"];
  };
  EXPECT_EQ(process("worker 0"), process("worker 0"));
  EXPECT_NE(process("worker 0"), process("worker 1"));
  EXPECT_NE(process("worker 0"), process("server 0"));
}

}  // namespace
}  // namespace poseidon
