// AllReduceSteps: one worker's schedule of an all-reduce, whose operations are worked out when they
// are asked for. A ring of a thousand workers has four thousand operations for every worker and
// chunk; what a worker has to keep of them is where it is.
//
// Everything is an all-reduce along the dimensions of a grid of workers: IBM's X x Y x Z (Cho et
// al. 2017, "PowerAI DDL", arXiv 1708.02188) and, with two dimensions, Sony's torus (Mikami et al.
// 2018, arXiv 1811.05233); a ring and halving and doubling have one dimension.
//
// A reduce-scatter along each dimension in turn, each on what the one before left of the range,
// then the all-gathers in reverse order. With rings of p_0, p_1, ... workers that is 2 sum (p_i -
// 1) steps instead of 2 (product p_i - 1) and as many bytes; after the first dimension only 1/p_0
// of the bytes are left for the others, so the fastest links are best made the first dimension.
// Chunk c starts in dimension c mod D, so that over D chunks the links of all dimensions are busy.
//
// A dimension may use the ring or halving and doubling, the latter of any size: workers of its
// smaller binary blocks then own nothing after its reduce-scatter, and the lines of the other
// dimensions through them stand still.
//
// A value; thread-safe for reading.
#pragma once

#include <optional>
#include <vector>

#include "collectives/group.h"
#include "collectives/schedule.h"

namespace poseidon {

class AllReduceSteps {
 public:
  // Arguments as AllReduceSchedule's.
  AllReduceSteps(Scheme scheme, const Plan& grid, int chunk, Range range, int rank, int workers);

  int size() const { return 2 * scattering_ + 1; }
  // `index` in [0, size). If the operation's range is empty there is nothing to do.
  Operation At(int index) const;
  // Index of the operation that waits for what `peer` sends in `step`, if one does; its range may
  // be empty.
  std::optional<int> Awaiting(int peer, int step) const;

 private:
  // One dimension as the worker sees it: its reduce-scatter, whose all-gather has as many
  // operations and step numbers.
  struct Line {
    Phase scatter;
    bool halving = false;
    int operations = 0;
    int steps = 0;  // numbers that a phase uses
    int gather_step = 0;
  };

  void AddLine(const Group& group, bool halving);
  static Phase Gathering(const Line& line);
  static Operation OperationOf(const Line& line, const Phase& phase, int index);

  std::vector<Line> lines_;  // in the order of their reduce-scatters
  Range owned_;              // that the worker completes
  int scattering_ = 0;       // operations of all reduce-scatters
};

}  // namespace poseidon
