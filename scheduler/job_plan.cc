#include "scheduler/job_plan.h"

#include <algorithm>

#include "scheduler/cluster_spec.h"
#include "scheduler/planner.h"
#include "scheduler/predictor.h"
#include "scheduler/time_planner.h"

namespace poseidon {
namespace {

// Twice what the link carries in a round trip, so that it never runs dry while the next bytes are
// being handed over; but not so little that handing over costs more than it gains: half of the
// kernel's own buffer (ZmqOptions.send_buffer_bytes). More would only delay what is urgent.
int64_t WindowBytes(const ClusterSpec& cluster) {
  constexpr int64_t kLeast = 256 << 10;
  constexpr double kRoundTrips = 2;
  const double in_flight = cluster.goodput * 2 * cluster.latency;
  return std::max(kLeast, static_cast<int64_t>(kRoundTrips * in_flight));
}

}  // namespace

Plan PlanJob(const InformationBook& book, const Job& job) {
  const Communication& communication = job.communication();
  Predictor predictor(book, ClusterOf(job));
  const bool by_time = communication.policy() == Communication::TIME;
  Plan plan = by_time ? PlanByTime(predictor, communication) : MakePlan(book, communication);
  if (!by_time && job.cluster().has_network()) predictor.Annotate(plan);
  if (job.cluster().has_network() && !communication.has_window_bytes()) {
    plan.set_window_bytes(WindowBytes(predictor.cluster()));
  }
  return plan;
}

}  // namespace poseidon
