// IterationCounts: how far each worker has come, to see that one has ended its training while
// another goes on. Programs whose number of iterations nobody knows in advance do that where their
// data are not of the same length; without this all others would wait for the one that has ended
// until a deadline.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

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

  // Workers that can't end together, if there are any.
  std::optional<Uneven> FindUneven() const;

 private:
  std::map<int, int64_t> done_;  // by rank: iterations
  std::set<int> finished_;
};

}  // namespace poseidon
