#include "collectives/group.h"

#include <glog/logging.h>

namespace poseidon {

int Group::IndexOf(int rank) const {
  const int place = (rank - base) / stride;
  if (rank < base || place >= size || base + place * stride != rank) return -1;
  return (place - first + size) % size;
}

Group AllWorkers(int rank, int workers, int first) {
  CHECK_GE(rank, 0);
  CHECK_LT(rank, workers);
  Group group;
  group.first = first % workers;
  group.size = workers;
  group.self = group.IndexOf(rank);
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

}  // namespace poseidon
