#include "collectives/traffic.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "collectives/halving_doubling.h"
#include "collectives/ring.h"

namespace poseidon {
namespace {

using Kind = Operation::Kind;

template <typename Counted>
int64_t Floats(const Schedule& schedule, Counted counted) {
  int64_t floats = 0;
  for (const Operation& operation : schedule) {
    if (counted(operation.kind)) floats += operation.range.size;
  }
  return floats;
}

// Carries schedules out in any order that is possible, counting instead of adding.
class RoundCounter {
 public:
  explicit RoundCounter(const std::vector<Schedule>& schedules)
      : schedules_(schedules), next_(schedules.size()), depth_(schedules.size()) {}

  int Count() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < schedules_.size(); ++rank) moved |= Advance(rank);
    }
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
      CHECK_EQ(next_[rank], schedules_[rank].size()) << "worker " << rank << " waits for ever";
    }
    return *std::max_element(depth_.begin(), depth_.end());
  }

 private:
  bool Advance(size_t rank) {
    const size_t before = next_[rank];
    const int self = static_cast<int>(rank);
    for (; next_[rank] < schedules_[rank].size(); ++next_[rank]) {
      const Operation& operation = schedules_[rank][next_[rank]];
      if (operation.kind == Kind::kSend) {
        messages_[{self, operation.peer, operation.step}] = depth_[rank] + 1;
      } else if (operation.kind != Kind::kRound) {
        const auto message = messages_.find({operation.peer, self, operation.step});
        if (message == messages_.end()) break;
        depth_[rank] = std::max(depth_[rank], message->second);
        messages_.erase(message);
      }
    }
    return next_[rank] != before;
  }

  const std::vector<Schedule>& schedules_;
  std::vector<size_t> next_;  // operation, of each worker
  std::vector<int> depth_;    // messages in the longest chain that led to where each worker is
  std::map<std::tuple<int, int, int>, int> messages_;  // from, to, step: their place in the chain
};

}  // namespace

int64_t FloatsSent(const Schedule& schedule) {
  return Floats(schedule, [](Kind kind) { return kind == Kind::kSend; });
}

int64_t FloatsReceived(const Schedule& schedule) {
  return Floats(schedule, [](Kind kind) { return kind == Kind::kAdd || kind == Kind::kCopy; });
}

int64_t FloatsAdded(const Schedule& schedule) {
  return Floats(schedule, [](Kind kind) { return kind == Kind::kAdd; });
}

int Rounds(const std::vector<Schedule>& schedules) {
  return schedules.empty() ? 0 : RoundCounter(schedules).Count();
}

int AllReduceRounds(Scheme scheme, const Plan& grid, int workers) {
  if (scheme == RING) return 2 * RingSteps(workers);
  if (scheme == HALVING_DOUBLING) return 2 * HalvingDoublingSteps(workers);
  CHECK_EQ(scheme, TORUS) << "no scheme of all-reduce";
  int rounds = 0;
  for (const GridDimension& dimension : grid.grid()) {
    const Scheme along = dimension.algorithm() == HALVING_DOUBLING ? HALVING_DOUBLING : RING;
    rounds += AllReduceRounds(along, grid, dimension.size());
  }
  return rounds;
}

}  // namespace poseidon
