#include "scheduler/recovery_round.h"

#include <algorithm>
#include <utility>

namespace poseidon {

Cut FindCut(const std::map<int, wire::Holdings>& by_rank) {
  Cut cut;
  for (const auto& [rank, holdings] : by_rank) {
    if (!holdings.complete()) continue;
    cut.iteration =
        cut.holders.empty() ? holdings.iteration() : std::min(cut.iteration, holdings.iteration());
    cut.holders.push_back(rank);
  }
  return cut;
}

void RecoveryRound::Begin(const std::string& cause, Duration silent, Time now) {
  if (active()) return;
  since_ = now;
  cause_ = cause;
  silent_ = silent;
}

void RecoveryRound::BeginHold() {
  ++hold_;
  holdings_.clear();
}

wire::Recovered RecoveryRound::End(int64_t iteration, int64_t reached, Time now) {
  wire::Recovered recovered;
  for (wire::Node& node : lost_) *recovered.add_lost() = std::move(node);
  for (wire::Node& node : left_) *recovered.add_left() = std::move(node);
  for (wire::Node& node : joined_) *recovered.add_joined() = std::move(node);
  recovered.set_cause(std::exchange(cause_, {}));
  recovered.set_iteration(iteration);
  recovered.set_reached(reached);
  recovered.set_detected_seconds(ToSeconds(silent_));
  recovered.set_restored_seconds(ToSeconds(now - *since_));
  since_.reset();
  lost_.clear();
  left_.clear();
  joined_.clear();
  holdings_.clear();
  return recovered;
}

}  // namespace poseidon
