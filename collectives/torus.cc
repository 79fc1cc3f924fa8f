#include "collectives/torus.h"

#include <glog/logging.h>

#include <vector>

#include "collectives/group.h"
#include "collectives/halving_doubling.h"
#include "collectives/ring.h"

namespace poseidon {
namespace {

// One dimension as a worker sees it.
struct Line {
  Group group;
  bool halving = false;

  // Step numbers of a phase.
  int steps() const {
    return halving ? HalvingDoublingStepNumbers(group.size()) : RingSteps(group.size());
  }
  ReduceScatter Scatter(Range range, int first_step) const {
    return halving ? HalvingReduceScatter(range, group, first_step)
                   : RingReduceScatter(range, group, first_step);
  }
  Schedule Gather(Range range, int first_step) const {
    return halving ? DoublingAllGather(range, group, first_step)
                   : RingAllGather(range, group, first_step);
  }
};

// The workers that differ from `rank` in the grid's dimension `dimension` only.
std::vector<Line> Lines(const Plan& grid, int rank, int workers) {
  std::vector<Line> lines;
  int stride = 1;
  for (const GridDimension& dimension : grid.grid()) {
    CHECK_GE(dimension.size(), 1);
    Line line;
    line.halving = dimension.algorithm() == HALVING_DOUBLING;
    line.group.self = rank / stride % dimension.size();
    const int start = rank - line.group.self * stride;
    for (int i = 0; i < dimension.size(); ++i) line.group.ranks.push_back(start + i * stride);
    lines.push_back(line);
    stride *= dimension.size();
  }
  CHECK_EQ(stride, workers) << "the grid's sizes must multiply to the number of workers";
  return lines;
}

}  // namespace

Schedule TorusAllReduce(const Plan& grid, int chunk, Range range, int rank, int workers) {
  const std::vector<Line> lines = Lines(grid, rank, workers);
  const size_t count = lines.size();
  const auto line_of = [&](size_t i) -> const Line& { return lines[(chunk + i) % count]; };
  Schedule schedule;
  std::vector<Range> ranges;  // what each dimension reduces
  int step = 0;
  for (size_t i = 0; i < count; ++i) {
    const ReduceScatter scatter = line_of(i).Scatter(range, step);
    Append(schedule, scatter.schedule);
    ranges.push_back(range);
    range = scatter.owned;
    step += line_of(i).steps();
  }
  Append(schedule, Operation{Operation::Kind::kRound, 0, 0, range});
  for (size_t i = count; i-- > 0;) {
    Append(schedule, line_of(i).Gather(ranges[i], step));
    step += line_of(i).steps();
  }
  return schedule;
}

}  // namespace poseidon
