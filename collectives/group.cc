#include "collectives/group.h"

#include <glog/logging.h>

namespace poseidon {

Group AllWorkers(int rank, int workers, int first) {
  CHECK_GE(rank, 0);
  CHECK_LT(rank, workers);
  Group group;
  group.self = (rank - first % workers + workers) % workers;
  for (int i = 0; i < workers; ++i) group.ranks.push_back((first + i) % workers);
  return group;
}

Range Pieces(Range range, int count, int first, int last) {
  const int64_t begin = range.size * first / count;
  const int64_t end = range.size * last / count;
  return {range.offset + begin, end - begin};
}

Range Piece(Range range, int count, int index) { return Pieces(range, count, index, index + 1); }

void Append(Schedule& schedule, const Operation& operation) {
  if (operation.range.size > 0) schedule.push_back(operation);
}

void Append(Schedule& schedule, const Schedule& operations) {
  schedule.insert(schedule.end(), operations.begin(), operations.end());
}

}  // namespace poseidon
