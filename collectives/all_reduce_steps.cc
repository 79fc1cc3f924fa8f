#include "collectives/all_reduce_steps.h"

#include <glog/logging.h>

#include <bit>

#include "collectives/halving_doubling.h"
#include "collectives/ring.h"

namespace poseidon {
namespace {

// The workers that differ from `rank` in the dimension with this stride only.
Group LineThrough(int rank, int stride, int size) {
  Group group;
  group.stride = stride;
  group.size = size;
  group.self = rank / stride % size;
  group.base = rank - group.self * stride;
  return group;
}

// Powers of two are not rotated: all send the same, and neighbors in rank, who exchange most, may
// be neighbors in the network.
Group ForHalving(int rank, int workers, int chunk) {
  const bool rotated = !std::has_single_bit(static_cast<unsigned>(workers));
  return AllWorkers(rank, workers, rotated ? chunk % workers : 0);
}

}  // namespace

AllReduceSteps::AllReduceSteps(Scheme scheme, const Plan& grid, int chunk, Range range, int rank,
                               int workers)
    : owned_(range) {
  if (scheme != TORUS) {
    CHECK(scheme == RING || scheme == HALVING_DOUBLING) << "no scheme of all-reduce";
    const bool halving = scheme == HALVING_DOUBLING;
    AddLine(halving ? ForHalving(rank, workers, chunk) : AllWorkers(rank, workers), halving);
  } else {
    std::vector<int> strides = {1};
    for (const GridDimension& dimension : grid.grid()) {
      CHECK_GE(dimension.size(), 1);
      strides.push_back(strides.back() * dimension.size());
    }
    CHECK_EQ(strides.back(), workers) << "the grid's sizes must multiply to the number of workers";
    for (int i = 0; i < grid.grid_size(); ++i) {
      const int d = (chunk + i) % grid.grid_size();
      AddLine(LineThrough(rank, strides[d], grid.grid(d).size()),
              grid.grid(d).algorithm() == HALVING_DOUBLING);
    }
  }
  int step = 0;
  for (Line& line : lines_) {
    line.scatter.first_step = step;
    step += line.steps;
  }
  for (size_t i = lines_.size(); i-- > 0;) {
    lines_[i].gather_step = step;
    step += lines_[i].steps;
  }
}

void AllReduceSteps::AddLine(const Group& group, bool halving) {
  Line line;
  line.scatter.group = group;
  line.scatter.range = owned_;
  line.halving = halving;
  line.operations = halving ? HalvingDoublingOperations(group) : RingOperations(group.size);
  line.steps = halving ? HalvingDoublingStepNumbers(group.size) : RingSteps(group.size);
  owned_ = halving ? HalvingDoublingOwned(line.scatter) : RingOwned(line.scatter);
  scattering_ += line.operations;
  lines_.push_back(line);
}

Phase AllReduceSteps::Gathering(const Line& line) {
  Phase phase = line.scatter;
  phase.first_step = line.gather_step;
  phase.gather = true;
  return phase;
}

Operation AllReduceSteps::OperationOf(const Line& line, const Phase& phase, int index) {
  return line.halving ? HalvingDoublingOperation(phase, index) : RingOperation(phase, index);
}

Operation AllReduceSteps::At(int index) const {
  for (const Line& line : lines_) {
    if (index < line.operations) return OperationOf(line, line.scatter, index);
    index -= line.operations;
  }
  if (index == 0) return {Operation::Kind::kRound, 0, 0, owned_};
  --index;
  size_t last = lines_.size() - 1;
  for (; index >= lines_[last].operations; --last) index -= lines_[last].operations;
  return OperationOf(lines_[last], Gathering(lines_[last]), index);
}

std::optional<int> AllReduceSteps::Awaiting(int peer, int step) const {
  int before = 0;  // operations of the earlier reduce-scatters
  for (const Line& line : lines_) {
    const bool gather = step >= line.gather_step && step < line.gather_step + line.steps;
    const int begin = line.scatter.first_step;
    if (gather || (step >= begin && step < begin + line.steps)) {
      const Phase phase = gather ? Gathering(line) : line.scatter;
      const std::optional<int> index = line.halving ? HalvingDoublingAwaiting(phase, peer, step)
                                                    : RingAwaiting(phase, peer, step);
      if (!index) return std::nullopt;
      // All-gathers come in reverse order.
      return gather ? size() - before - line.operations + *index : before + *index;
    }
    before += line.operations;
  }
  return std::nullopt;
}

}  // namespace poseidon
