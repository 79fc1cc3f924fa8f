#include "proto/lanes.h"

#include <algorithm>

#include "proto/job_config.h"

namespace poseidon {

bool PlansLanes(const Job& job) {
  if (job.communication().has_lanes()) return false;
  return job.cluster().has_network() || MeasuresLinks(job);
}

int MostPlannedLanes(int cores) {
  // Each lane of a worker and of a server beside it leaves as much for computing.
  constexpr int kCoresOfLane = 4;
  // Under 200 Gb/s eight lanes keep up with any model that has been tried, and sixteen gain
  // nothing.
  constexpr int kMost = 8;
  return std::clamp(cores / kCoresOfLane, 1, kMost);
}

int OfferedLanes(const Job& job, int cores) {
  if (!PlansLanes(job)) return job.communication().lanes();
  return MostPlannedLanes(job.cluster().has_cores() ? job.cluster().cores() : cores);
}

}  // namespace poseidon
