#include "diagnosis/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/trace.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr NodeId kServer{Role::kServer, 0};
constexpr NodeId kWorker{Role::kWorker, 1};
// The worker's machine was started later, and its wall clock is set wrongly.
constexpr Duration kStartedLater = std::chrono::hours(7);
constexpr Duration kWrong = milliseconds(250);
constexpr Duration kDelay = microseconds(100);
constexpr Duration kWallClock = std::chrono::hours(24 * 365 * 50);

EventFile FileOf(const NodeId& node, const std::string& clock, Duration wall_clock) {
  EventFile file;
  file.node = node;
  file.clock = clock;
  file.wall_clock = wall_clock;
  file.buckets = {"conv1", "fc"};
  file.lanes = {{kApplicationLane, {}}, {kControlLane, {}}, {1, {}}, {kFirstDataLane, {}}};
  return file;
}

NodeEvent Frame(NodeEvent::Type type, Time time, MessageKind kind, const NodeId& peer,
                uint64_t number, int64_t iteration) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.iteration = iteration;
  envelope.bucket = 1;
  envelope.body = Payload::FromString(std::string(1000, 'x'));
  return FrameEvent(type, time, envelope, {peer, kFirstDataLane}, number);
}

// A worker and a server that have exchanged a gradient and values three times.
std::vector<EventFile> ExchangeOfTwoMachines() {
  EventFile server = FileOf(kServer, "one", kWallClock);
  EventFile worker = FileOf(kWorker, "two", kWallClock + kStartedLater + kWrong);
  auto& at_server = server.lanes.back().events;
  auto& at_worker = worker.lanes.back().events;
  using enum NodeEvent::Type;
  for (int i = 1; i <= 3; ++i) {
    const Time begin = std::chrono::hours(8) + milliseconds(10 * i);
    const Time arrived = begin + kDelay;
    const Time answered = arrived + milliseconds(2);
    const auto there = [](Time time) { return time - kStartedLater; };
    at_worker.push_back(Frame(kSent, there(begin), MessageKind::kGradient, kServer, i, i));
    at_server.push_back(Frame(kArrived, arrived, MessageKind::kGradient, kWorker, i, i));
    at_server.push_back(Frame(kSent, answered, MessageKind::kValues, kWorker, i, i));
    at_worker.push_back(
        Frame(kArrived, there(answered + kDelay), MessageKind::kValues, kServer, i, i));
  }
  NodeEvent wait;
  wait.time = at_worker.front().time;
  wait.kind = static_cast<int>(Activity::kWaiting);
  worker.lanes.front().events = {wait};
  worker.layers = {"first layer"};
  worker.written = at_worker.back().time;
  server.written = at_server.back().time;
  return {server, worker};
}

class TimelineTest : public ::testing::Test {
 protected:
  void Write(const EventFile& file) {
    WriteFileAtomically(directory_.Path(EventFileName(file.node)), EventFileText(file));
  }

  // Worker 1's, as if written on its machine.
  void WriteThere(const Trace& trace) {
    const std::string path = directory_.Path("worker-1.trace.json");
    trace.Write(path);
    nlohmann::json written = nlohmann::json::parse(std::ifstream(path));
    written["otherData"]["clock"] = "two";
    WriteFileAtomically(path, written.dump());
  }

  Timeline Make() { return MakeTimeline(ReadJobFiles(directory_.path())); }

  TemporaryDirectory directory_;
};

// Process, row and time.
using Place = std::tuple<int, int, double>;

Place PlaceOf(const nlohmann::json& event) {
  return {event.at("pid").get<int>(), event.at("tid").get<int>(), event.at("ts").get<double>()};
}

// What Chrome's format demands of each event, and that arrows begin and end in spans.
void ExpectWellFormed(const nlohmann::json& events) {
  std::map<int, int> begins;
  std::map<int, int> ends;
  std::set<Place> spans;
  for (const auto& event : events) {
    const std::string phase = event.at("ph");
    ASSERT_TRUE(event.at("pid").is_number_integer()) << event;
    ASSERT_TRUE(event.at("name").is_string()) << event;
    if (phase == "M") {
      ASSERT_TRUE(event.at("args").at("name").is_string()) << event;
      continue;
    }
    ASSERT_GE(event.at("ts").get<double>(), 0) << event;
    if (phase == "X") {
      ASSERT_GE(event.at("dur").get<double>(), 0) << event;
      spans.insert(PlaceOf(event));
    } else if (phase == "s") {
      ++begins[event.at("id").get<int>()];
    } else if (phase == "f") {
      ++ends[event.at("id").get<int>()];
      ASSERT_EQ(event.at("bp"), "e") << event;
    } else if (phase == "C") {
      ASSERT_GE(event.at("args").at("bytes").get<int64_t>(), 0) << event;
    } else {
      ASSERT_EQ(phase, "i") << event;
    }
  }
  ASSERT_EQ(begins, ends);
  for (const auto& [id, count] : begins) ASSERT_EQ(count, 1) << "arrow " << id;
  for (const auto& event : events) {
    if (event["ph"] != "s" && event["ph"] != "f") continue;
    ASSERT_TRUE(spans.contains(PlaceOf(event))) << event;
  }
}

TEST_F(TimelineTest, ArrowsLeadFromSendToArrivalOnOneClock) {
  for (const EventFile& file : ExchangeOfTwoMachines()) Write(file);
  const Timeline timeline = Make();
  EXPECT_EQ(timeline.nodes, 2U);
  EXPECT_EQ(timeline.arrows, 6U);
  const nlohmann::json events = nlohmann::json::parse(timeline.json).at("traceEvents");
  ExpectWellFormed(events);
  std::map<int, double> sent;
  for (const auto& event : events) {
    if (event["ph"] == "s") sent[event["id"].get<int>()] = event["ts"].get<double>();
  }
  for (const auto& event : events) {
    if (event["ph"] != "f") continue;
    // Both ways take as long, so the middle is the truth.
    EXPECT_NEAR(event["ts"].get<double>() - sent[event["id"].get<int>()], 100, 0.01) << event;
  }
}

TEST_F(TimelineTest, SaysHowTheClocksDifferAndHowSureItIs) {
  for (const EventFile& file : ExchangeOfTwoMachines()) Write(file);
  EXPECT_EQ(Make().clocks,
            std::vector<std::string>{"worker 1: 250.000 ms ahead of server 0's machine, off by at "
                                     "most 0.100 ms"});
}

TEST_F(TimelineTest, CountsBytesInFlight) {
  for (const EventFile& file : ExchangeOfTwoMachines()) Write(file);
  const nlohmann::json events = nlohmann::json::parse(Make().json).at("traceEvents");
  std::map<std::string, std::vector<int64_t>> counters;
  for (const auto& event : events) {
    if (event["ph"] == "C")
      counters[event["name"].get<std::string>()].push_back(event["args"]["bytes"].get<int64_t>());
  }
  const std::vector<int64_t> on_and_off = {1000, 0, 1000, 0, 1000, 0};
  EXPECT_EQ(counters["bytes in flight to server 0"], on_and_off);
  EXPECT_EQ(counters["bytes in flight to worker 1"], on_and_off);
}

TEST_F(TimelineTest, TracesAndActivitiesAreOnThatClockToo) {
  std::vector<EventFile> files = ExchangeOfTwoMachines();
  for (const EventFile& file : files) Write(file);
  Trace trace("worker 1", 10);
  const Time begin = files[1].lanes.back().events.front().time;
  trace.Add({"backward", "fc", "compute", 1, begin, begin + milliseconds(1)});
  WriteThere(trace);
  const nlohmann::json events = nlohmann::json::parse(Make().json).at("traceEvents");
  ExpectWellFormed(events);
  std::map<std::string, double> times;
  double first_sent = INFINITY;
  for (const auto& event : events) {
    const double when = event["ph"] == "M" ? 0 : event["ts"].get<double>();
    if (event["ph"] == "X") times.emplace(event["name"].get<std::string>(), when);
    if (event["ph"] == "s") first_sent = std::min(first_sent, when);
  }
  // All began when the worker sent the first gradient, which is the first thing that happened.
  // Traces are written in microseconds of the wall clock, of which doubles keep a quarter, so that
  // the trace's may be the earliest, from which all times count.
  const double waiting = times.at("waiting for first layer");
  EXPECT_NEAR(waiting, first_sent, 0.01);
  EXPECT_NEAR(times.at("backward fc"), waiting, 0.5);
  EXPECT_NEAR(std::min(times.at("backward fc"), waiting), 0, 0.01);
}

// Spans of a row that follow each other, on a clock that is far ahead and runs faster: Perfetto
// drops one that reaches into the next.
TEST_F(TimelineTest, SpansThatFollowEachOtherStillDo) {
  constexpr double kFaster = 1e-4;
  std::vector<EventFile> files = ExchangeOfTwoMachines();
  std::mt19937_64 random(5);
  const auto draw = [&](Duration most) {
    return Duration(std::uniform_int_distribution<int64_t>(1, most.count())(random));
  };
  for (EventFile& file : files) {
    for (NodeEvent& event : file.lanes.back().events)
      event.time += std::chrono::hours(event.iteration);
  }
  const Time origin = files[1].lanes.back().events.front().time;
  const auto on_it = [&](Time time) {
    return time + Duration(std::llround(kFaster * static_cast<double>((time - origin).count())));
  };
  for (NodeEvent& event : files[1].lanes.back().events) event.time = on_it(event.time);
  for (const EventFile& file : files) Write(file);
  Trace trace("worker 1", 1000);
  Time begin = origin + draw(milliseconds(1));
  for (int span = 0; span < 1000; ++span) {
    const Time end = begin + draw(milliseconds(span % 10 == 0 ? 10'000 : 1));
    trace.Add({"forward", "fc", "compute", span, begin, end});
    begin = end;
  }
  WriteThere(trace);
  const nlohmann::json events = nlohmann::json::parse(Make().json).at("traceEvents");
  std::vector<std::pair<double, double>> spans;
  for (const auto& event : events) {
    if (event.value("cat", "") != "forward") continue;
    const double time = event["ts"].get<double>();
    spans.emplace_back(time, time + event["dur"].get<double>());
  }
  ASSERT_EQ(spans.size(), 1000U);
  for (size_t i = 1; i < spans.size(); ++i) {
    // What traces keep of the wall clock's microseconds is a quarter, and half of that is lost
    // twice; and nanoseconds are rounded where the clock is turned back.
    EXPECT_NEAR(spans[i - 1].second, spans[i].first, 0.252) << i;
  }
}

TEST_F(TimelineTest, AProcessInTheSameNumbersIsNoPair) {
  std::vector<EventFile> files = ExchangeOfTwoMachines();
  // The server has a frame 1 of another iteration, from the process that worker 1 has replaced.
  files[0].lanes.back().events.front().iteration = 77;
  for (const EventFile& file : files) Write(file);
  EXPECT_EQ(Make().arrows, 5U);
}

TEST_F(TimelineTest, AFileThatWasCutOffIsLeftOut) {
  const std::vector<EventFile> files = ExchangeOfTwoMachines();
  Write(files[0]);
  const std::string text = EventFileText(files[1]);
  directory_.Write("worker-1.events.json", text.substr(0, text.size() / 2));
  const JobFiles job = ReadJobFiles(directory_.path());
  ASSERT_EQ(job.unreadable.size(), 1U);
  EXPECT_THAT(job.unreadable[0], HasSubstr("worker-1.events.json: not a node's events"));
  EXPECT_EQ(MakeTimeline(job).nodes, 1U);
}

TEST_F(TimelineTest, ADirectoryWithoutAJobIsRefused) {
  EXPECT_THROW(ReadJobFiles(directory_.path()), ConfigError);
  EXPECT_THROW(ReadJobFiles(directory_.Path("nowhere")), ConfigError);
  directory_.Write("summary.json", R"({"job": "a", "exit_code": 0, "reason": ""})");
  EXPECT_THROW(MakeTimeline(ReadJobFiles(directory_.path())), ConfigError);
}

}  // namespace
}  // namespace poseidon
