#include "diagnosis/timeline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "diagnosis/frame_pairs.h"

namespace poseidon {
namespace {

using Json = nlohmann::json;

// Rows of a process: those of its trace have smaller numbers.
constexpr int kProgramRow = 100000;
constexpr int kFirstLaneRow = kProgramRow + 1;
constexpr int kRowsOfALane = 2;
// A frame is a moment, but arrows need something that lasts.
constexpr double kFrameMicroseconds = 1;

int SentRow(int lane) { return kFirstLaneRow + kRowsOfALane * lane; }
int ArrivedRow(int lane) { return SentRow(lane) + 1; }

std::string NameOr(const std::vector<std::string>& names, uint32_t index, const char* what) {
  if (index < names.size()) return names[index];
  return std::string(what) + " " + std::to_string(index);
}

bool IsOfLayer(const NodeEvent& event) {
  return event.kind >= static_cast<int>(MessageKind::kInitialValues) &&
         event.kind < static_cast<int>(MessageKind::kProbe);
}

// Of a trace. The wall clock's, of which a double keeps quarters of a microsecond: in nanoseconds
// it would lose them.
Duration FromMicroseconds(double microseconds) {
  // More than a century, so that a damaged file's do not overflow.
  constexpr double kMost = 4e15;
  const double bounded = std::clamp(microseconds, -kMost, kMost);
  const double whole = std::floor(bounded);
  return std::chrono::microseconds(std::llround(whole)) +
         Duration(std::llround((bounded - whole) * 1000));
}

std::string InMilliseconds(Duration duration) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f ms", std::abs(ToSeconds(duration)) * 1000);
  return text;
}

class Writer {
 public:
  explicit Writer(const JobFiles& job) : job_(job) {
    ReadTraces();
    for (const EventFile& file : job_.events) {
      NumberOf(file.node.ToString());
      if (!file.buckets.empty()) buckets_ = file.buckets;
    }
    if (numbers_.empty()) {
      throw ConfigError(
          "the job has left neither traces nor events; run it with `trace: true` in the config's "
          "`training` (docs/explain.md)");
    }
    FindBegin();
  }

  Timeline Make() {
    for (const auto& [name, number] : numbers_) {
      Add({{"ph", "M"}, {"name", "process_name"}, {"pid", number}, {"args", {{"name", name}}}});
    }
    AddTraces();
    for (size_t node = 0; node < job_.events.size(); ++node) AddNode(node);
    timeline_.nodes = numbers_.size();
    AddFlows();
    TellClocks();
    const Json other = {{"begin_ns", begin_.count() + WallClock().count()},
                        {"clocks", timeline_.clocks}};
    timeline_.json = "{\"traceEvents\":[\n" + text_ + "\n],\"otherData\":" + other.dump() + "}\n";
    return std::move(timeline_);
  }

 private:
  struct TraceOf {
    std::string process;
    Json events;
    // From the trace's times to the first node's clock.
    Duration to_steady{};
    const ClockEstimate* clock = nullptr;

    Time Common(double microseconds, double later = 0) const {
      const Time steady = FromMicroseconds(microseconds) + FromMicroseconds(later) + to_steady;
      return clock == nullptr ? steady : clock->ToReference(steady);
    }
  };

  void ReadTraces() {
    for (const std::string& path : job_.traces) {
      try {
        Json json = Json::parse(ReadRegularFile(path, ExitCode::kDataError, kMostFileBytes));
        const Json& other = json.at("otherData");
        TraceOf& trace = traces_.emplace_back();
        trace.process = other.at("process").get<std::string>();
        trace.to_steady = -Duration(other.at("wall_clock_ns").get<int64_t>());
        trace.clock = ClockNamed(other.at("clock").get<std::string>(), trace.process);
        if (trace.clock == nullptr) trace.to_steady += WallClock();
        trace.events = std::move(json.at("traceEvents"));
        NumberOf(trace.process);
      } catch (const Json::exception&) {
        throw Error(ExitCode::kDataError,
                    path +
                        ": not a trace of this version, or cut off; remove it, or run the job "
                        "again");
      }
    }
  }

  // Of a node of the same machine, or that node.
  const ClockEstimate* ClockNamed(const std::string& name, const std::string& process) const {
    for (size_t node = 0; node < job_.events.size(); ++node) {
      const EventFile& file = job_.events[node];
      const bool same_machine = !name.empty() && file.clock == name;
      if (same_machine || file.node.ToString() == process) return &job_.clocks[node];
    }
    return nullptr;
  }

  // What the first node's clock lacks to be the wall clock.
  Duration WallClock() const {
    if (!job_.events.empty()) return job_.events.front().wall_clock;
    return traces_.empty() ? Duration{} : -traces_.front().to_steady;
  }

  int NumberOf(const std::string& process) {
    return numbers_.emplace(process, static_cast<int>(numbers_.size()) + 1).first->second;
  }

  void FindBegin() {
    begin_ = Time::max();
    for (const TraceOf& trace : traces_) {
      for (const Json& event : trace.events) {
        if (event.contains("ts")) begin_ = std::min(begin_, trace.Common(event["ts"]));
      }
    }
    for (size_t node = 0; node < job_.events.size(); ++node) {
      for (const EventFile::Lane& lane : job_.events[node].lanes) {
        if (lane.events.empty()) continue;
        begin_ = std::min(begin_, job_.Common(node, lane.events.front().time));
      }
    }
    if (begin_ == Time::max()) begin_ = Time{};
  }

  double Microseconds(Time common) const {
    return std::chrono::duration<double, std::micro>(common - begin_).count();
  }

  void Add(const Json& event) { text_ += (text_.empty() ? "" : ",\n") + event.dump(); }

  void AddTraces() {
    for (TraceOf& trace : traces_) {
      const int number = NumberOf(trace.process);
      for (Json& event : trace.events) {
        if (event.value("name", "") == "process_name") continue;
        event["pid"] = number;
        if (event.contains("ts")) TurnTimes(trace, event);
        Add(event);
      }
    }
  }

  // Also what it lasts: where clocks run differently, a span of the trace's own length would reach
  // into the next one.
  void TurnTimes(const TraceOf& trace, Json& event) const {
    const double begin = event["ts"];
    const double turned = Microseconds(trace.Common(begin));
    if (event.contains("dur")) {
      event["dur"] = Microseconds(trace.Common(begin, event["dur"])) - turned;
    }
    event["ts"] = turned;
  }

  void AddRow(int process, int row, const std::string& name) {
    Add({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", process},
         {"tid", row},
         {"args", {{"name", name}}}});
  }

  void AddNode(size_t node) {
    const EventFile& file = job_.events[node];
    const int process = NumberOf(file.node.ToString());
    for (const EventFile::Lane& lane : file.lanes) {
      if (lane.events.empty()) continue;
      if (lane.lane == kApplicationLane) {
        AddRow(process, kProgramRow, "program");
        AddActivities(node, lane.events);
        continue;
      }
      const std::string name = "lane " + std::to_string(lane.lane);
      AddRow(process, SentRow(lane.lane), name + " sends");
      AddRow(process, ArrivedRow(lane.lane), name + " receives");
      AddFrames(node, lane);
    }
  }

  void AddActivities(size_t node, const std::vector<NodeEvent>& events) {
    const EventFile& file = job_.events[node];
    for (size_t i = 0; i < events.size(); ++i) {
      const NodeEvent& event = events[i];
      const Time end = i + 1 < events.size() ? events[i + 1].time : file.written;
      std::string name = ActivityName(event.kind);
      if (event.kind == static_cast<int>(Activity::kWaiting) && event.bucket < file.layers.size()) {
        name += " for " + file.layers[event.bucket];
      }
      AddSpan(file.node, kProgramRow, name, job_.Common(node, event.time),
              Microseconds(job_.Common(node, end)) - Microseconds(job_.Common(node, event.time)),
              {{"iteration", event.iteration}});
    }
  }

  void AddSpan(const NodeId& node, int row, const std::string& name, Time begin, double duration,
               const Json& arguments) {
    Add({{"ph", "X"},
         {"name", name},
         {"pid", NumberOf(node.ToString())},
         {"tid", row},
         {"ts", Microseconds(begin)},
         {"dur", std::max(0.0, duration)},
         {"args", arguments}});
  }

  std::string NameOfFrame(const NodeEvent& event) const {
    const std::string kind = KindName(static_cast<MessageKind>(event.kind));
    return IsOfLayer(event) ? kind + " " + NameOr(buckets_, event.bucket, "bucket") : kind;
  }

  void AddFrames(size_t node, const EventFile::Lane& lane) {
    // A span must not reach into the next of its row.
    std::map<NodeEvent::Type, const NodeEvent*> last;
    for (const NodeEvent& event : lane.events) {
      const NodeEvent* const before = std::exchange(last[event.type], &event);
      if (before != nullptr) AddFrame(node, lane.lane, *before, event.time);
    }
    for (const auto& [type, event] : last) AddFrame(node, lane.lane, *event, Time::max());
  }

  void AddFrame(size_t node, int lane, const NodeEvent& event, Time next) {
    double duration = kFrameMicroseconds;
    if (next != Time::max()) {
      duration =
          std::min(duration, std::chrono::duration<double, std::micro>(next - event.time).count());
    }
    const bool is_sent = event.type == NodeEvent::Type::kSent;
    Json arguments = {{is_sent ? "to" : "from", event.peer().node.ToString()},
                      {"iteration", event.iteration},
                      {"chunk", event.chunk},
                      {"bytes", event.bytes}};
    AddSpan(job_.events[node].node, is_sent ? SentRow(lane) : ArrivedRow(lane), NameOfFrame(event),
            job_.Common(node, event.time), duration, arguments);
  }

  // A frame's arrow, and what it adds to the bytes on their way.
  void AddFlows() {
    // By sender and receiver: when how many bytes more are on their way.
    std::map<std::pair<size_t, size_t>, std::vector<std::pair<Time, int64_t>>> ways;
    for (const FramePair& pair : PairFrames(job_.events)) {
      const Time sent = job_.Common(pair.sender, pair.sent->time);
      // Clocks are known up to an error, and an arrow that points back would be none.
      const Time arrived = std::max(sent, job_.Common(pair.receiver, pair.arrived->time));
      ++timeline_.arrows;
      AddFlowEnd("s", pair.sender, SentRow(pair.lane), *pair.sent,
                 Microseconds(job_.Common(pair.sender, pair.sent->time)));
      AddFlowEnd("f", pair.receiver, ArrivedRow(pair.receiver_lane), *pair.arrived,
                 Microseconds(job_.Common(pair.receiver, pair.arrived->time)));
      if (pair.sent->bytes == 0) continue;
      auto& way = ways[{pair.sender, pair.receiver}];
      way.emplace_back(sent, pair.sent->bytes);
      way.emplace_back(arrived, -pair.sent->bytes);
    }
    for (auto& [nodes, changes] : ways) AddCounter(nodes.first, nodes.second, changes);
  }

  void AddFlowEnd(const char* phase, size_t node, int row, const NodeEvent& event, double time) {
    Json flow = {{"ph", phase},
                 {"cat", "frame"},
                 {"name", KindName(static_cast<MessageKind>(event.kind))},
                 {"id", timeline_.arrows},
                 {"pid", NumberOf(job_.events[node].node.ToString())},
                 {"tid", row},
                 {"ts", time}};
    if (*phase == 'f') flow["bp"] = "e";
    Add(flow);
  }

  void AddCounter(size_t sender, size_t receiver, std::vector<std::pair<Time, int64_t>>& changes) {
    // What arrives at a moment has left before what is sent then.
    std::ranges::sort(changes);
    const std::string name = "bytes in flight to " + job_.events[receiver].node.ToString();
    const int process = NumberOf(job_.events[sender].node.ToString());
    int64_t bytes = 0;
    for (const auto& [time, change] : changes) {
      bytes += change;
      Add({{"ph", "C"},
           {"name", name},
           {"pid", process},
           {"ts", Microseconds(time)},
           {"args", {{"bytes", std::max<int64_t>(0, bytes)}}}});
    }
  }

  void TellClocks() {
    for (size_t node = 1; node < job_.events.size(); ++node) {
      const EventFile& first = job_.events.front();
      const EventFile& file = job_.events[node];
      if (!file.clock.empty() && file.clock == first.clock) continue;
      const ClockEstimate& clock = job_.clocks[node];
      // Steady clocks begin with their machines; what people set are wall clocks.
      const Duration ahead = clock.offset + file.wall_clock - first.wall_clock;
      timeline_.clocks.push_back(
          file.node.ToString() + ": " +
          (clock.known ? InMilliseconds(ahead) + (ahead < Duration{} ? " behind " : " ahead of ") +
                             first.node.ToString() + "'s machine, off by at most " +
                             InMilliseconds(clock.error)
                       : "no frames there and back are kept, so its wall clock is taken as it is"));
    }
  }

  const JobFiles& job_;
  std::vector<TraceOf> traces_;
  std::map<std::string, int> numbers_;  // of the processes
  std::vector<std::string> buckets_;
  Time begin_{};  // of the first node's clock
  std::string text_;
  Timeline timeline_;
};

}  // namespace

Timeline MakeTimeline(const JobFiles& job) { return Writer(job).Make(); }

}  // namespace poseidon
