// WorkQueue: the work that a lane's actor has left, for the runtime that carries it out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "transport/actor.h"

namespace poseidon {

// Not thread-safe: lives on its lane.
class WorkQueue {
 public:
  bool empty() const { return waiting_.empty(); }
  void Add(std::vector<Work> works);
  // Not if empty: what the next slice comes to, and all that is left of its work.
  ArithmeticAmount NextSlice() const;
  ArithmeticAmount Left() const;
  // Carries out the next slice, of the most urgent work. Not if empty. Returns that work's `done`,
  // for the caller to call, if this was its last slice; else nothing.
  std::function<void(Outbox&)> RunSlice();
  void Clear() { waiting_.clear(); }

 private:
  struct Progress {
    Work work;
    size_t part = 0;  // the next slice's
    int64_t slice = 0;
  };

  // Goes on to the next part that has slices left, if there is one.
  static void SkipParts(Progress& progress);

  // By priority, then in the order in which they came.
  std::map<std::pair<int64_t, uint64_t>, Progress> waiting_;
  uint64_t order_ = 0;
};

}  // namespace poseidon
