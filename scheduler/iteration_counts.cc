#include "scheduler/iteration_counts.h"

#include <algorithm>

namespace poseidon {

void IterationCounts::Done(int rank, int64_t iteration) {
  int64_t& done = done_[rank];
  done = std::max(done, iteration + 1);
}

void IterationCounts::Finished(int rank) {
  finished_.insert(rank);
  done_.try_emplace(rank, 0);
}

std::optional<IterationCounts::Uneven> IterationCounts::FindUneven() const {
  for (const int finished : finished_) {
    for (const auto& [rank, iterations] : done_) {
      if (iterations > done_.at(finished)) {
        return Uneven{finished, done_.at(finished), rank, iterations};
      }
    }
  }
  return std::nullopt;
}

}  // namespace poseidon
