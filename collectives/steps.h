// Steps: a worker's schedule as whoever carries it out needs it: operation by operation, and which
// of them a frame is for. Either stored or worked out (AllReduceSteps).
//
// A value; thread-safe for reading.
#pragma once

#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "collectives/all_reduce_steps.h"
#include "collectives/schedule.h"

namespace poseidon {

class Steps {
 public:
  Steps(AllReduceSteps steps) : source_(std::move(steps)) {}          // NOLINT: these are steps
  Steps(Schedule schedule) : source_(Stored(std::move(schedule))) {}  // NOLINT

  int size() const {
    return std::visit([](const auto& source) { return source.size(); }, source_);
  }
  // `index` in [0, size). If the operation's range is empty there is nothing to do.
  Operation At(int index) const {
    return std::visit([index](const auto& source) { return source.At(index); }, source_);
  }
  // Index of the operation that waits for what `peer` sends in `step`, if one does; its range may
  // be empty.
  std::optional<int> Awaiting(int peer, int step) const {
    return std::visit([=](const auto& source) { return source.Awaiting(peer, step); }, source_);
  }

 private:
  class Stored {
   public:
    explicit Stored(Schedule schedule);
    int size() const { return static_cast<int>(schedule_.size()); }
    const Operation& At(int index) const { return schedule_[static_cast<size_t>(index)]; }
    std::optional<int> Awaiting(int peer, int step) const;

   private:
    Schedule schedule_;
    std::vector<std::tuple<int, int, int>> awaited_;  // peer, step, index; sorted
  };

  std::variant<Stored, AllReduceSteps> source_;
};

}  // namespace poseidon
