#include "worker/pass_schedule.h"

#include <algorithm>
#include <utility>

namespace poseidon {

PassSchedule::PassSchedule(int iter_size, std::vector<Growth> growth)
    : iter_size_(iter_size), growth_(std::move(growth)) {
  growth_.insert(growth_.begin(), Growth{});
}

int64_t PassSchedule::PassesOf(int64_t iteration) const {
  int64_t factor = 1;
  for (const Growth& growth : growth_) {
    if (growth.first <= iteration) factor = growth.factor;
  }
  return iter_size_ * factor;
}

int64_t PassSchedule::PassesBefore(int64_t iteration) const {
  int64_t passes = 0;
  for (size_t i = 0; i < growth_.size() && growth_[i].first < iteration; ++i) {
    const int64_t end =
        i + 1 < growth_.size() ? std::min(growth_[i + 1].first, iteration) : iteration;
    passes += (end - growth_[i].first) * growth_[i].factor;
  }
  return iter_size_ * passes;
}

int64_t PassSchedule::most() const {
  int64_t most = 1;
  for (const Growth& growth : growth_) most = std::max<int64_t>(most, growth.factor);
  return iter_size_ * most;
}

}  // namespace poseidon
