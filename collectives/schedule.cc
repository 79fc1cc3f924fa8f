#include "collectives/schedule.h"

#include <glog/logging.h>

#include <bit>
#include <utility>

#include "collectives/group.h"
#include "collectives/halving_doubling.h"
#include "collectives/ring.h"
#include "collectives/torus.h"

namespace poseidon {
namespace {

Schedule AllReduce(ReduceScatter scatter, const Schedule& gather) {
  Append(scatter.schedule, Operation{Operation::Kind::kRound, 0, 0, scatter.owned});
  Append(scatter.schedule, gather);
  return std::move(scatter.schedule);
}

}  // namespace

Schedule AllReduceSchedule(Scheme scheme, const Plan& grid, int chunk, Range range, int rank,
                           int workers) {
  if (scheme == TORUS) return TorusAllReduce(grid, chunk, range, rank, workers);
  if (scheme == HALVING_DOUBLING) {
    // Powers of two are not rotated: all send the same, and neighbours in rank, who exchange most,
    // may be neighbours in the network.
    const bool rotated = !std::has_single_bit(static_cast<unsigned>(workers));
    const Group group = AllWorkers(rank, workers, rotated ? chunk % workers : 0);
    return AllReduce(HalvingReduceScatter(range, group, 0),
                     DoublingAllGather(range, group, HalvingDoublingStepNumbers(workers)));
  }
  CHECK_EQ(scheme, RING) << "no scheme of all-reduce";
  const Group group = AllWorkers(rank, workers);
  return AllReduce(RingReduceScatter(range, group, 0),
                   RingAllGather(range, group, RingSteps(workers)));
}

Schedule AllGatherSchedule(Scheme scheme, const std::vector<Range>& blocks, int rank) {
  const Group group = AllWorkers(rank, static_cast<int>(blocks.size()));
  if (scheme == HALVING_DOUBLING) return DoublingAllGather(blocks, group);
  CHECK_EQ(scheme, RING) << "no scheme of all-gather";
  return RingAllGather(blocks, group);
}

}  // namespace poseidon
