// IterationCounts: how far each worker has come, to see that one has ended its training while
// another goes on. Programs whose number of iterations nobody knows in advance do that where their
// data are not of the same length; without this all others would wait for the one that has ended
// until a deadline.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace poseidon {

class IterationCounts {
 public:
  struct Uneven {
    int finished = -1;  // rank of a worker that has ended
    int64_t finished_after = 0;
    int ahead = -1;  // rank of a worker that has done more iterations
    int64_t ahead_after = 0;
  };

  // Worker `rank` has done iteration `iteration`, from 0.
  void Done(int rank, int64_t iteration);
  // Worker `rank` will do no more.
  void Finished(int rank);

  // The two that are furthest apart of those that can't end together, if there are any. In constant
  // time, as it is asked after every message of thousands of workers.
  std::optional<Uneven> FindUneven() const;

 private:
  std::map<int, int64_t> done_;                 // by rank: iterations
  int ahead_ = -1;                              // rank of a worker that has done most
  std::set<std::pair<int64_t, int>> finished_;  // iterations and rank
};

}  // namespace poseidon
