// What the algorithms share: who takes part, and how a range is cut among them. Pure functions.
#pragma once

#include "collectives/schedule.h"

namespace poseidon {

// Workers that exchange with each other, in an order that all of them know, seen by one of them:
// every `stride`th from `base` on, beginning with the `first` of these and ending with the one
// before it. By formula, for there are as many groups as workers.
struct Group {
  int base = 0;
  int stride = 1;
  int first = 0;  // in [0, size)
  int size = 1;
  int self = 0;  // index of one's own rank

  int RankAt(int index) const { return base + stride * ((first + index) % size); }
  // -1: not in the group.
  int IndexOf(int rank) const;
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

// Half an all-reduce among a group as one of it sees it: each ends with the sum of a range of its
// own, maybe an empty one, or, gathering, begins with that and ends with all. Its operations are
// numbered in the order in which they are carried out; those with empty ranges count.
struct Phase {
  Group group;
  Range range;  // that the group reduces or gathers, not what a worker owns of it
  int first_step = 0;
  bool gather = false;
};

}  // namespace poseidon
