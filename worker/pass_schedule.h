// PassSchedule: how many forward and backward passes make one update. A value.
#pragma once

#include <cstdint>
#include <vector>

namespace poseidon {

class PassSchedule {
 public:
  // From iteration `first` on, `factor` times as many passes as the solver's iter_size.
  struct Growth {
    int64_t first = 0;
    int factor = 1;
  };

  // `growth` ascends; before its first entry the factor is 1.
  explicit PassSchedule(int iter_size = 1, std::vector<Growth> growth = {});

  int64_t PassesOf(int64_t iteration) const;
  // Passes of all iterations before this one: the number of its first pass, which decides its data.
  int64_t PassesBefore(int64_t iteration) const;
  // The most passes of any iteration.
  int64_t most() const;

 private:
  int64_t iter_size_;
  std::vector<Growth> growth_;  // the first from iteration 0
};

}  // namespace poseidon
