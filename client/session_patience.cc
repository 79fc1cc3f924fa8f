#include "client/session_patience.h"

#include <optional>

#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

constexpr int kBeyondOthers = 2;
// Lanes that wait for servers report a stall after up to 1.6 deadlines, and the scheduler collects
// reports for 0.2: on a machine that is busy, and where a deadline is a few seconds, the rest of a
// second one is too short for the news.
constexpr int kBeyondStalls = 3;
// A year: a deadline that far from now can be computed with.
constexpr Duration kForEver = std::chrono::hours(24 * 365);

// Where the job recovers: until another scheduler is there, and others in lost ones' places.
Duration LossPatience(const Job& job) {
  const std::optional<Duration> scheduler = SchedulerDeadline(job);
  if (!scheduler) return Duration::zero();
  return *scheduler + Seconds(job.recovery().replacement_deadline_seconds());
}

}  // namespace

SessionPatience::SessionPatience(const Job& job)
    : join_(kBeyondOthers * Seconds(job.cluster().join_deadline_seconds()) + LossPatience(job)),
      stall_(kBeyondStalls * StallDeadline(job) + LossPatience(job)),
      pause_(kBeyondOthers * PauseDeadline(job) + LossPatience(job)) {
  // Whoever comes to a job under way is taken in when the workers change next.
  if (job.has_elastic()) {
    join_ += Seconds(job.elastic().regroup_interval_seconds()) + PauseDeadline(job);
  }
  all_to_join_ = SchedulerDeadline(job) ? kForEver : join_ + kBeyondOthers * TimingOf(job).deadline;
}

}  // namespace poseidon
