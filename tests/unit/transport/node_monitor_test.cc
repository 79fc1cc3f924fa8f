// What a server or worker tells of itself: its metrics, read back by a parser of the text format,
// and its answers over HTTP.
#include "transport/monitor/node_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "core/http/metrics_writer.h"
#include "core/steady_now.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/transport/zmq_testing.h"
#include "transport/monitor/node_metrics.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Labels = std::map<std::string, std::string>;

// Samples by name and labels, as a reader of the text format 0.0.4 finds them. Throws
// std::runtime_error for what is none.
class Exposition {
 public:
  explicit Exposition(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      line.starts_with("#") ? ReadHead(line) : ReadSample(line);
    }
    if (!text.empty() && text.back() != '\n') Fail("the last line has no end");
  }

  double value(const std::string& name, const Labels& labels) const {
    const auto found = samples_.find({name, labels});
    if (found == samples_.end()) Fail("no sample " + name);
    return found->second;
  }
  bool has(const std::string& name) const { return types_.contains(name); }
  size_t size() const { return samples_.size(); }

 private:
  [[noreturn]] static void Fail(const std::string& why) { throw std::runtime_error(why); }

  void ReadHead(const std::string& line) {
    std::istringstream words(line);
    std::string mark, kind, name, type;
    words >> mark >> kind >> name >> type;
    if (kind == "HELP") {
      if (!helped_.insert(name).second) Fail("twice: " + line);
      family_ = name;
      return;
    }
    if (kind != "TYPE" || name != family_) Fail("no head: " + line);
    if (type != "gauge" && type != "counter") Fail("no type: " + line);
    if ((type == "counter") != name.ends_with("_total")) Fail("named otherwise: " + line);
    types_[name] = type;
  }

  void ReadSample(const std::string& line) {
    size_t at = line.find_first_of("{ ");
    const std::string name = line.substr(0, at);
    if (name != family_ || !types_.contains(name)) Fail("outside its family: " + line);
    Labels labels;
    if (line.at(at) == '{') at = ReadLabels(line, at + 1, labels);
    if (line.at(at) != ' ') Fail("no space: " + line);
    double value = 0;
    const char* const end = line.data() + line.size();
    const auto [read, error] = std::from_chars(line.data() + at + 1, end, value);
    if (error != std::errc() || read != end) Fail("no number: " + line);
    if (!samples_.emplace(std::pair(name, labels), value).second) Fail("twice: " + line);
  }

  // From behind "{"; returns where the "}" ends.
  static size_t ReadLabels(const std::string& line, size_t at, Labels& labels) {
    while (true) {
      const size_t equals = line.find("=\"", at);
      if (equals == std::string::npos) Fail("no label: " + line);
      const std::string name = line.substr(at, equals - at);
      std::string value;
      for (at = equals + 2; line.at(at) != '"'; ++at) {
        if (line[at] == '\\')
          value += line.at(++at) == 'n' ? '\n' : line[at];
        else
          value += line[at];
      }
      if (!labels.emplace(name, value).second) Fail("a label twice: " + line);
      if (line.at(++at) == '}') return at + 1;
      if (line[at] != ',') Fail("no comma: " + line);
      ++at;
    }
  }

  std::string family_;
  std::set<std::string> helped_;
  std::map<std::string, std::string> types_;
  std::map<std::pair<std::string, Labels>, double> samples_;
};

TEST(MetricsWriter, GivesBackAnyLabelAndNumber) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string label;
    for (size_t i = random() % 12; i > 0; --i) label += "ab\\\"\n{}=, n"[random() % 11];
    double value = 0;
    const uint64_t bits = random();
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    MetricsWriter out;
    out.Family("poseidon_unused", "gauge", "No sample.");
    out.Family("poseidon_any", "gauge", "Any.");
    out.Sample(value, {{"first", label}, {"second", "2"}});
    const Exposition read(out.Take());
    EXPECT_EQ(read.value("poseidon_any", {{"first", label}, {"second", "2"}}), value);
    EXPECT_FALSE(read.has("poseidon_unused"));
  }
}

TEST(NodeMetrics, AreWhatTheNodeSays) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  // Doubles hold these exactly.
  const auto draw = [&random] { return static_cast<int64_t>(random() >> 12) + 1; };
  for (int round = 0; round < 50; ++round) {
    const NodeMetrics node{.role = "worker",
                           .rank = static_cast<int>(random() % 1000),
                           .iteration = draw(),
                           .messages_sent = draw(),
                           .messages_received = draw(),
                           .bytes_sent = draw(),
                           .bytes_received = draw(),
                           .messages_malformed = draw(),
                           .messages_unroutable = draw(),
                           .connections_rejected = draw(),
                           .connections_refused = draw(),
                           .messages_queued = draw(),
                           .bytes_queued = draw(),
                           .update_seconds = static_cast<double>(draw()) * 1e-9,
                           .processor_seconds = static_cast<double>(draw()) * 1e-9,
                           .resident_bytes = draw()};
    const Exposition read(NodeMetricsText(node));
    const Labels labels{{"role", "worker"}, {"rank", std::to_string(node.rank)}};
    const auto value = [&](const std::string& name) {
      return read.value("poseidon_node_" + name, labels);
    };
    const auto reason = [&](const std::string& name, const std::string& why) {
      Labels more = labels;
      more["reason"] = why;
      return static_cast<int64_t>(read.value("poseidon_node_" + name, more));
    };
    EXPECT_EQ(value("joined"), 1);
    EXPECT_EQ(value("iteration"), node.iteration);
    EXPECT_EQ(value("sent_messages_total"), node.messages_sent);
    EXPECT_EQ(value("received_messages_total"), node.messages_received);
    EXPECT_EQ(value("sent_bytes_total"), node.bytes_sent);
    EXPECT_EQ(value("received_bytes_total"), node.bytes_received);
    EXPECT_EQ(value("queued_messages"), node.messages_queued);
    EXPECT_EQ(value("queued_bytes"), node.bytes_queued);
    EXPECT_EQ(value("update_seconds_total"), node.update_seconds);
    EXPECT_EQ(reason("dropped_messages_total", "malformed"), node.messages_malformed);
    EXPECT_EQ(reason("dropped_messages_total", "unroutable"), node.messages_unroutable);
    EXPECT_EQ(reason("rejected_connections_total", "silent"), node.connections_rejected);
    EXPECT_EQ(reason("rejected_connections_total", "refused"), node.connections_refused);
    EXPECT_EQ(read.value("process_cpu_seconds_total", {}), node.processor_seconds);
    EXPECT_EQ(read.value("process_resident_memory_bytes", {}), node.resident_bytes);
    EXPECT_EQ(read.size(), 15u);
  }
}

TEST(NodeMetrics, LeavesOutWhatIsNotKnown) {
  const Exposition read(NodeMetricsText({.role = "server"}));
  EXPECT_EQ(read.value("poseidon_node_joined", {{"role", "server"}}), 0);
  EXPECT_FALSE(read.has("process_resident_memory_bytes"));
}

// A peer that takes nothing for a while, and then all.
TEST(ZmqRuntime, CountsWhatQueuesAndHowLongItsActorsTake) {
  constexpr int kFrames = 64;
  constexpr int64_t kBytes = 1 << 20;
  ZmqOptions options = Lanes(1);
  options.window_bytes = 1 << 20;
  options.times_actors = true;
  auto nodes = MakeNodes(2, options);
  std::atomic<bool> takes{false};
  nodes[1]->Attach(kFirstDataLane, OnMessage([&takes](const Envelope& envelope, Outbox& outbox) {
                     while (!takes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     outbox.Send(envelope);
                     outbox.messages.back().to = Here(kApplicationLane);
                   }));
  for (auto& node : nodes) node->Start();
  const Time begin = SteadyNow();
  const Payload body = Payload::FromString(std::string(kBytes, 'x'));
  for (int i = 0; i < kFrames; ++i) {
    nodes[0]->Post(Gradient(WorkerLane(1, kFirstDataLane), body, i));
  }
  const TransportCounters& counters = nodes[0]->counters();
  while (counters.frames_sent + counters.queued_frames < kFrames ||
         nodes[1]->counters().frames_received == 0) {
    ASSERT_LT(SteadyNow() - begin, kPatience);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(counters.queued_frames, 0);
  EXPECT_GT(counters.queued_bytes, 0);
  EXPECT_EQ(counters.queued_bytes % kBytes, 0);
  const Time still = SteadyNow();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Duration stood = SteadyNow() - still;
  takes = true;
  for (int i = 0; i < kFrames; ++i) ASSERT_TRUE(nodes[1]->mailbox().Take(kPatience));
  // The last frame may be there before the lane that has sent it gets to count it.
  const Time sent = SteadyNow();
  while (counters.queued_frames > 0 || counters.queued_bytes > 0) {
    ASSERT_LT(SteadyNow() - sent, kPatience);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(counters.queued_frames, 0);
  EXPECT_EQ(counters.queued_bytes, 0);
  EXPECT_GE(nodes[1]->counters().busy_nanoseconds, stood.count());
  EXPECT_LE(nodes[1]->counters().busy_nanoseconds, Duration(SteadyNow() - begin).count());
}

class NodeMonitorTest : public testing::Test {
 protected:
  NodeMonitorTest() { config_.set_node_port(0); }

  // Status and body.
  std::pair<int, std::string> Ask(const NodeMonitor& monitor, const std::string& path,
                                  const std::string& token = "") const {
    httplib::Client client("127.0.0.1", monitor.port());
    httplib::Headers headers;
    if (!token.empty()) headers.emplace("Authorization", "Bearer " + token);
    const httplib::Result result = client.Get(path.c_str(), headers);
    if (!result) return {0, "no answer"};
    return {result->status, result->body};
  }

  Monitor config_;
  std::atomic<int> rank_{-1};
  std::atomic<int64_t> iteration_{0};
  TransportCounters counters_;
  NodeMonitor::Shown shown_{Role::kServer, rank_, iteration_, counters_};
};

TEST_F(NodeMonitorTest, ShowsWhatIsNow) {
  const NodeMonitor monitor(config_, shown_);
  EXPECT_THAT(monitor.url(), StartsWith("http://127.0.0.1:"));
  EXPECT_EQ(Ask(monitor, "/healthz"),
            std::pair(503, std::string("the node has not joined the job yet\n")));
  rank_ = 3;
  iteration_ = 17;
  counters_.bytes_sent = 4711;
  counters_.busy_nanoseconds = 1500000000;
  EXPECT_EQ(Ask(monitor, "/healthz"), std::pair(200, std::string("ok\n")));
  const Exposition read(Ask(monitor, "/metrics").second);
  const Labels labels{{"role", "server"}, {"rank", "3"}};
  EXPECT_EQ(read.value("poseidon_node_iteration", labels), 17);
  EXPECT_EQ(read.value("poseidon_node_sent_bytes_total", labels), 4711);
  EXPECT_EQ(read.value("poseidon_node_update_seconds_total", labels), 1.5);
  EXPECT_GT(read.value("process_resident_memory_bytes", {}), 0);
  const auto [status, text] = Ask(monitor, "/api/job");
  EXPECT_EQ(status, 404);
  EXPECT_THAT(text, HasSubstr("there are /metrics and /healthz"));
}

TEST_F(NodeMonitorTest, AsksForTheTokenExceptOfHealth) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/token";
  std::ofstream(path) << "0123456789abcdef\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  config_.set_token_file(path);
  const NodeMonitor monitor(config_, shown_);
  EXPECT_EQ(Ask(monitor, "/metrics").first, 401);
  EXPECT_EQ(Ask(monitor, "/metrics", "0123456789abcdeg").first, 401);
  EXPECT_EQ(Ask(monitor, "/metrics", "0123456789abcdef").first, 200);
  EXPECT_EQ(Ask(monitor, "/healthz").first, 503);
}

TEST_F(NodeMonitorTest, NamesThePortThatIsTaken) {
  const NodeMonitor first(config_, shown_);
  config_.set_node_port(first.port());
  try {
    const NodeMonitor second(config_, shown_);
    FAIL() << "two monitors have one port";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("set monitor.node_port to a free port, or to 0"));
  }
}

}  // namespace
}  // namespace poseidon
