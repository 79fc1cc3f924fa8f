#include "diagnosis/silence.h"

#include <algorithm>
#include <optional>

#include "diagnosis/last_events.h"

namespace poseidon {
namespace {

using Connection = EventFile::Connection;

// As long as a node's heart may stand still without anybody taking it for lost, in parts of the
// time that it was silent for the others.
constexpr double kShareOfPause = 0.5;

// How the connections of all others to a node were when the job ended.
struct Connections {
  int unanswered = 0;   // what was sent was sent again, and not confirmed
  int established = 0;  // and nothing else
  int gone = 0;
  std::string example;  // a node that has seen the first of these
};

bool IsUnanswered(const Connection& one) {
  return one.retransmissions > 0 && !one.window_closed &&
         (one.unconfirmed_bytes > 0 || one.state == Connection::State::kConnecting);
}

Connections ConnectionsTo(const JobFiles& job, const NodeId& node) {
  Connections all;
  for (const EventFile& file : job.events) {
    if (file.node == node) continue;
    for (const Connection& one : file.connections) {
      if (one.to.node != node) continue;
      if (IsUnanswered(one)) {
        ++all.unanswered;
        if (all.example.empty()) all.example = file.node.ToString();
      } else if (one.state == Connection::State::kEstablished) {
        ++all.established;
      } else {
        ++all.gone;
      }
    }
  }
  return all;
}

std::string Counted(int count) {
  return std::to_string(count) + (count == 1 ? " connection" : " connections");
}

// The longest time that a node's peers had heard nothing of it.
Duration SilenceOf(const JobFiles& job, const NodeId& node) {
  Time last = Time::min();
  for (size_t i = 0; i < job.events.size(); ++i) {
    for (const EventFile::Lane& lane : job.events[i].lanes) {
      for (const NodeEvent& event : lane.events) {
        if (event.type != NodeEvent::Type::kArrived || event.peer().node != node) continue;
        last = std::max(last, job.Common(i, event.time));
      }
    }
  }
  return last == Time::min() ? Duration{} : EndOf(job) - last;
}

}  // namespace

Judgment JudgeSilence(const JobFiles& job, const NodeId& silent) {
  const std::string name = silent.ToString();
  const Connections all = ConnectionsTo(job, silent);
  const std::optional<size_t> file = FindFile(job, silent);
  Judgment judgment;
  auto& evidence = judgment.evidence;
  if (file) {
    const EventFile& own = job.events[*file];
    const Duration pause = LongestPause(own);
    const bool stood_still = ToSeconds(pause) >= kShareOfPause * ToSeconds(SilenceOf(job, silent));
    if (stood_still && all.unanswered == 0) {
      judgment.cause = Cause::kStopped;
      evidence.push_back(name + " itself saw nothing at all for " + DurationText(pause) +
                         ", neither frames nor its own timers, and then went on: its process or "
                         "its machine was stopped.");
      return judgment;
    }
    judgment.cause = Cause::kNetworkCut;
    evidence.push_back(name + " lived on, and ended with \"" + own.reason + "\".");
  }
  if (all.unanswered > 0) {
    judgment.cause = Cause::kNetworkCut;
    evidence.push_back(Counted(all.unanswered) + " of others to " + name + ", as of " +
                       all.example +
                       ", had sent the same bytes again, and its machine confirmed none of them.");
    return judgment;
  }
  if (file) return judgment;
  if (all.gone > 0 && all.established == 0) {
    judgment.cause = Cause::kKilled;
    evidence.push_back("Its machine has closed the " + Counted(all.gone) +
                       " that others had to it, as it does when a process ends.");
    evidence.push_back(
        "It has not written its last events, which a process does that ends by "
        "itself or is told to.");
  } else if (all.established > 0) {
    judgment.cause = Cause::kStopped;
    evidence.push_back("Its machine still answered on " + Counted(all.established) +
                       ", so the network was whole and the process was there, but it did nothing "
                       "for " +
                       DurationText(SilenceOf(job, silent)) + ", not even send its heartbeat.");
  }
  return judgment;
}

}  // namespace poseidon
