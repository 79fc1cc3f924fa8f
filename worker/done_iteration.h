// DoneIteration: with the parameters of which iteration something was done last that is done once
// with those of each, such as a test. Where the job goes back, later iterations are done again and
// their parameters are others, so that it is to be done again with these.
//
//   if (!tested_.is(iteration)) ...   tested_.Set(iteration);
//
// A value.
#pragma once

#include <cstdint>
#include <optional>

namespace poseidon {

class DoneIteration {
 public:
  bool is(int64_t iteration) const { return iteration_ == iteration; }
  void Set(int64_t iteration) { iteration_ = iteration; }
  // Training goes on from `iteration`, whose parameters are what they were.
  void GoBack(int64_t iteration) {
    if (iteration_ > iteration) iteration_.reset();
  }

 private:
  std::optional<int64_t> iteration_;
};

}  // namespace poseidon
