// What a trace writes, for those who read it: Chrome's trace format.
#include "core/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
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

// In Chrome's format the spans of a row are a stack.
TEST_F(TraceTest, SpansThatOverlapGetRowsOfTheirOwn) {
  Trace trace("worker 0", 10);
  const auto add = [&](const std::string& layer, const std::string& track, double begin,
                       double end) {
    trace.Add({"send", layer, track, 0, Seconds(begin), Seconds(end)});
  };
  add("late", "lane 0", 2, 5);  // what is added last need not begin last
  add("first", "lane 0", 0, 3);
  add("within", "lane 0", 1, 3);
  add("after", "lane 0", 3, 4);
  add("moment", "lane 0", 2.5, 2.5);
  add("elsewhere", "lane 1", 2, 4);
  std::map<std::string, int> rows;
  std::map<int, std::string> names;
  for (const nlohmann::json& event : Written(trace)) {
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "M") rows[event["args"]["layer"]] = event["tid"];
  }
  EXPECT_EQ(rows["within"], rows["first"]);
  EXPECT_EQ(rows["after"], rows["first"]);
  EXPECT_EQ(rows["moment"], rows["first"]);
  EXPECT_NE(rows["late"], rows["first"]);
  EXPECT_EQ(names[rows["late"]], "lane 0");
  EXPECT_EQ(names[rows["elsewhere"]], "lane 1");
  EXPECT_EQ(names.size(), 3u);
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
