#include "scheduler/monitor/node_state.h"

#include <algorithm>
#include <cmath>

namespace poseidon {
namespace {

// A worker may take so many times as long as the iterations before, and at least so long, before it
// counts as late: a test phase or a snapshot is no news.
constexpr double kIterationsToBeLate = 5;
constexpr double kSecondsToBeLate = 2;

// What the states of workers in training depend on, beside their own.
struct Pace {
  int64_t furthest = 0;
  double patience = kSecondsToBeLate;  // seconds
  std::string slowest;                 // "worker 2, iteration 17" of the late ones; empty: none is
};

bool Trains(const JobStatus& status) {
  return status.phase == "training" || status.phase == "agreeing";
}

// Since the worker told of an iteration, or training began or went on.
double StillSeconds(const JobStatus& status, const NodeStatus& node) {
  const Time since = std::max(node.heard, status.resumed);
  return since == Time{} ? 0 : ToSeconds(status.now - since);
}

double SilentSeconds(const JobStatus& status, const NodeStatus& node) {
  if (node.heard != Time{}) return ToSeconds(status.now - node.heard);
  return Trains(status) ? StillSeconds(status, node) : kUnknownValue;
}

// Where all have told of the same iteration only the heartbeat says who keeps the others waiting.
bool IsLate(const JobStatus& status, const Pace& pace, const NodeId& id, const NodeStatus& node) {
  if (node.overdue || id.role == Role::kServer) return node.overdue;
  return node.done < pace.furthest && StillSeconds(status, node) > pace.patience;
}

Pace PaceOf(const JobStatus& status) {
  Pace pace;
  if (!std::isnan(status.iteration_ms)) {
    pace.patience = std::max(pace.patience, kIterationsToBeLate * status.iteration_ms / 1000);
  }
  for (const auto& [id, node] : status.nodes) {
    if (id.role == Role::kWorker && !node.lost) pace.furthest = std::max(pace.furthest, node.done);
  }
  for (const auto& [id, node] : status.nodes) {
    if (node.lost || node.finished || !IsLate(status, pace, id, node)) continue;
    pace.slowest += (pace.slowest.empty() ? "" : "; ") + id.ToString();
    if (id.role == Role::kWorker) pace.slowest += ", iteration " + std::to_string(node.done);
  }
  return pace;
}

std::string StateInTraining(const JobStatus& status, const Pace& pace, const NodeId& id,
                            const NodeStatus& node) {
  if (IsLate(status, pace, id, node)) return "late";
  if (id.role == Role::kServer) return "serving";
  const bool stands_still = !pace.slowest.empty() && StillSeconds(status, node) > pace.patience;
  return stands_still ? "waiting" : "training";
}

std::string StateOf(const JobStatus& status, const Pace& pace, const NodeId& id,
                    const NodeStatus& node) {
  if (node.lost) return "lost";
  if (node.finished) return "finished";
  if (status.end)
    return id.role == Role::kServer && status.end->exit_code() == 0 ? "finished" : "ended";
  if (node.awaited) return "awaited";
  if (node.host.empty()) return "joining";
  if (!Trains(status)) return "ready";
  return StateInTraining(status, pace, id, node);
}

}  // namespace

std::vector<NodeState> NodeStates(const JobStatus& status) {
  const Pace pace = PaceOf(status);
  std::vector<NodeState> states;
  for (const auto& [id, node] : status.nodes) {
    NodeState state;
    state.node = id;
    state.state = StateOf(status, pace, id, node);
    if (id.role == Role::kWorker) {
      state.lag = node.lost ? 0 : pace.furthest - node.done;
      state.silent_seconds = SilentSeconds(status, node);
    }
    if (state.state == "waiting") state.waits_for = pace.slowest;
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace poseidon
