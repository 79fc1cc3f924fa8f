#include "diagnosis/last_events.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace poseidon {
namespace {

bool IsOfBucket(const NodeEvent& frame) {
  const auto kind = static_cast<MessageKind>(frame.kind);
  return kind >= MessageKind::kInitialValues && kind < MessageKind::kProbe;
}

// What a message is, as a noun; of most kinds their names are.
std::string MessageText(MessageKind kind) {
  switch (kind) {
    case MessageKind::kRegister:
      return "request to join";
    case MessageKind::kRefused:
      return "refusal";
    case MessageKind::kDeclareModel:
      return "declaration of its model";
    case MessageKind::kReady:
      return "word that it is ready";
    case MessageKind::kStart:
      return "word to start";
    case MessageKind::kFinished:
      return "final report";
    case MessageKind::kFailed:
      return "word of its failure";
    case MessageKind::kStalled:
      return "word of whom it waits for";
    case MessageKind::kEnd:
      return "word of the job's end";
    case MessageKind::kPauseRequest:
      return "question when to pause";
    case MessageKind::kPauseOffer:
      return "word when it can pause";
    case MessageKind::kPauseAt:
      return "word when to pause";
    case MessageKind::kPaused:
      return "word that it has paused";
    case MessageKind::kWriteSnapshot:
      return "request for a snapshot";
    case MessageKind::kLeave:
      return "wish to leave";
    case MessageKind::kHold:
      return "word to stop for a recovery";
    case MessageKind::kHoldings:
      return "word of what it holds";
    case MessageKind::kHeartbeatAck:
      return "answer to a heartbeat";
    case MessageKind::kReduce:
      return "partial sum";
    case MessageKind::kFetchOptimizerState:
      return "request for the optimizer state";
    case MessageKind::kReplica:
      return "copy for the backup";
    case MessageKind::kReplicated:
      return "word that a copy has come";
    case MessageKind::kProbeEcho:
      return "answer to a probe";
    default:
      return KindName(kind);
  }
}

std::string BucketName(const JobFiles& job, uint32_t bucket) {
  for (const EventFile& file : job.events) {
    if (bucket < file.buckets.size()) return file.buckets[bucket];
  }
  return "bucket " + std::to_string(bucket);
}

// By the other node: when the last frame of its data came.
std::map<NodeId, Time> LastArrivals(const EventFile& file) {
  std::map<NodeId, Time> last;
  for (const EventFile::Lane& lane : file.lanes) {
    if (lane.lane < kFirstDataLane) continue;
    for (const NodeEvent& event : lane.events) {
      if (event.type != NodeEvent::Type::kArrived) continue;
      Time& time = last.emplace(event.peer().node, event.time).first->second;
      time = std::max(time, event.time);
    }
  }
  return last;
}

std::string ActivityText(const JobFiles& job, size_t node, const LastActivity& activity) {
  const NodeEvent& event = activity.event;
  std::string text = ActivityName(event.kind);
  if (event.kind == static_cast<int>(Activity::kWaiting)) {
    text += " for the values of " + LayerName(job, node, event.bucket);
  }
  return text + " in iteration " + std::to_string(event.iteration) + " for " +
         DurationText(activity.lasted);
}

}  // namespace

Time EndOf(const JobFiles& job) {
  Time end = Time::max();
  for (size_t i = 0; i < job.events.size(); ++i) {
    end = std::min(end, job.Common(i, job.events[i].written));
  }
  return job.events.empty() ? Time{} : end;
}

std::optional<size_t> FindFile(const JobFiles& job, const NodeId& node) {
  const auto found = std::ranges::find(job.events, node, &EventFile::node);
  if (found == job.events.end()) return std::nullopt;
  return static_cast<size_t>(found - job.events.begin());
}

std::string LayerName(const JobFiles& job, size_t node, uint32_t layer) {
  const EventFile& file = job.events[node];
  if (layer < file.layers.size()) return file.layers[layer];
  return layer > file.layers.size() && !file.layers.empty() ? "a layer"
                                                            : "layer " + std::to_string(layer);
}

std::string FrameText(const JobFiles& job, const NodeEvent& frame, const NodeId& from,
                      const NodeId& to) {
  std::string text = "the " + MessageText(static_cast<MessageKind>(frame.kind));
  if (IsOfBucket(frame)) {
    text += " of " + BucketName(job, frame.bucket) + ", iteration " +
            std::to_string(frame.iteration) + ",";
  }
  return text + " from " + from.ToString() + " to " + to.ToString();
}

std::optional<LastActivity> FindLastActivity(const EventFile& file) {
  for (const EventFile::Lane& lane : file.lanes) {
    if (lane.lane != kApplicationLane || lane.events.empty()) continue;
    return LastActivity{lane.events.back(), file.written - lane.events.back().time};
  }
  return std::nullopt;
}

Duration LongestPause(const EventFile& file) {
  // Only from when on all rings reach back to: a lane with little to do keeps much older events.
  Time begin = Time::min();
  std::vector<Time> times;
  for (const EventFile::Lane& lane : file.lanes) {
    if (lane.events.empty()) continue;
    begin = std::max(begin, lane.events.front().time);
    for (const NodeEvent& event : lane.events) times.push_back(event.time);
  }
  std::ranges::sort(times);
  Duration longest{};
  for (size_t i = 1; i < times.size(); ++i) {
    if (times[i - 1] >= begin) longest = std::max(longest, times[i] - times[i - 1]);
  }
  return longest;
}

std::string LastMessageFrom(const JobFiles& job, const NodeId& node) {
  const NodeEvent* last = nullptr;
  size_t receiver = 0;
  Time last_time{};
  for (size_t i = 0; i < job.events.size(); ++i) {
    for (const EventFile::Lane& lane : job.events[i].lanes) {
      for (const NodeEvent& event : lane.events) {
        const Time time = job.Common(i, event.time);
        const bool counts = event.type == NodeEvent::Type::kArrived && event.peer().node == node;
        if (!counts || (last != nullptr && time <= last_time)) continue;
        last = &event;
        receiver = i;
        last_time = time;
      }
    }
  }
  if (last == nullptr) return "";
  const Duration before = EndOf(job) - last_time;
  const std::string when =
      before > Duration{} ? DurationText(before) + " before the job's end" : "when the job ended";
  return "The last message exchanged with " + node.ToString() + " was " +
         FrameText(job, *last, node, job.events[receiver].node) + ", " + when + ".";
}

std::string WaitOf(const JobFiles& job, size_t node) {
  const EventFile& file = job.events[node];
  std::string text = file.node.ToString();
  const auto activity = FindLastActivity(file);
  const std::map<NodeId, Time> last = LastArrivals(file);
  if (activity) text += " had been " + ActivityText(job, node, *activity);
  if (last.empty()) {
    return activity ? text + "." : text + " had nothing of the training to wait for.";
  }
  const auto oldest = std::ranges::min_element(last, {}, &std::pair<const NodeId, Time>::second);
  text += (activity ? ", and" : " had") + std::string(activity ? " had" : "") +
          " last got data from " + oldest->first.ToString() + " " +
          DurationText(file.written - oldest->second) + " before";
  if (last.size() > 1) {
    Time newest{};
    for (const auto& [peer, time] : last) {
      if (peer != oldest->first) newest = std::max(newest, time);
    }
    text += ", from others " + DurationText(file.written - newest) + " before";
  }
  return text + ".";
}

std::string DurationText(Duration duration) {
  char text[64];
  const double seconds = ToSeconds(duration);
  if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.0f ms", seconds * 1000);
  } else {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  }
  return text;
}

}  // namespace poseidon
