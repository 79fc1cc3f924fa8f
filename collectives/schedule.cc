#include "collectives/schedule.h"

#include <glog/logging.h>

#include "collectives/all_reduce_steps.h"
#include "collectives/group.h"
#include "collectives/halving_doubling.h"
#include "collectives/ring.h"

namespace poseidon {

Schedule AllReduceSchedule(Scheme scheme, const Plan& grid, int chunk, Range range, int rank,
                           int workers) {
  const AllReduceSteps steps(scheme, grid, chunk, range, rank, workers);
  Schedule schedule;
  for (int i = 0; i < steps.size(); ++i) Append(schedule, steps.At(i));
  return schedule;
}

Schedule AllGatherSchedule(Scheme scheme, const std::vector<Range>& blocks, int rank) {
  const Group group = AllWorkers(rank, static_cast<int>(blocks.size()));
  if (scheme == HALVING_DOUBLING) return DoublingAllGather(blocks, group);
  CHECK_EQ(scheme, RING) << "no scheme of all-gather";
  return RingAllGather(blocks, group);
}

}  // namespace poseidon
