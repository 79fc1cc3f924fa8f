// What the algorithms share: who takes part, and how a range is cut among them. Pure functions.
#pragma once

#include <vector>

#include "collectives/schedule.h"

namespace poseidon {

// Workers that exchange with each other, in an order that all of them know, seen by one of them.
struct Group {
  std::vector<int> ranks;
  int self = 0;  // index of one's own rank in `ranks`
  int size() const { return static_cast<int>(ranks.size()); }
};

// All workers; the one at index 0 is `first`.
Group AllWorkers(int rank, int workers, int first = 0);

// Piece `index` of a range that is cut into `count` pieces as equal as can be: sizes differ by one
// float at most. Cuts are nested: piece i of c is pieces 2 i and 2 i + 1 of 2 c.
Range Piece(Range range, int count, int index);
// Pieces first ... last - 1 of them.
Range Pieces(Range range, int count, int first, int last);

// Puts an operation at the end unless its range is empty.
void Append(Schedule& schedule, const Operation& operation);
// Puts operations at the end.
void Append(Schedule& schedule, const Schedule& operations);

// Half an all-reduce among a group: each ends with the sum of a range of its own, maybe an empty
// one.
struct ReduceScatter {
  Schedule schedule;
  Range owned;
};

}  // namespace poseidon
