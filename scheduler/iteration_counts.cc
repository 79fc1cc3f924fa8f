#include "scheduler/iteration_counts.h"

#include <algorithm>

namespace poseidon {

void IterationCounts::Done(int rank, int64_t iteration) {
  int64_t& done = done_[rank];
  // What a worker did last may be heard of after its end.
  const bool has_finished = finished_.erase({done, rank}) > 0;
  done = std::max(done, iteration + 1);
  if (has_finished) finished_.insert({done, rank});
  if (ahead_ < 0 || done > done_.at(ahead_)) ahead_ = rank;
}

void IterationCounts::Finished(int rank) {
  finished_.insert({done_.try_emplace(rank, 0).first->second, rank});
}

std::optional<IterationCounts::Uneven> IterationCounts::FindUneven() const {
  if (ahead_ < 0 || finished_.empty()) return std::nullopt;
  const auto& [finished_after, finished] = *finished_.begin();
  const int64_t ahead_after = done_.at(ahead_);
  if (ahead_after <= finished_after) return std::nullopt;
  return Uneven{finished, finished_after, ahead_, ahead_after};
}

}  // namespace poseidon
