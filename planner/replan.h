// Replanning: once the workers have measured how long their layers compute, whether another plan is
// worth going over to.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "planner/job_plan.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

struct Replanned {
  // Set if another plan is so much better that it pays to go over to it. Its model has the measured
  // times.
  std::optional<wire::PlanAndModel> plan;
  std::string why;  // for people: both predictions, and which buckets change
  Plan current;     // with the predictions that the measured times lead to
};

// The mean computing time of the plan's workers, against that of one that is not known to deviate.
double MeanComputeFactor(const Job& job, const wire::PlanAndModel& current);

// For a checked job under policy TIME; one with local steps keeps its plan. `measured` has the
// times of all the model's layers, the mean over the workers that there were then; `factor` is the
// MeanComputeFactor of their plan, which need not be that of `current`. Takes as long as making the
// first plan did; throws Error (kInterrupted) soon after `stop` is requested, when a trial that is
// under way has ended.
Replanned Replan(const Job& job, const wire::PlanAndModel& current,
                 const wire::LayerTimes& measured, double factor, const JobPlanTrial& trial = {},
                 const std::stop_token& stop = {});

// What Replanned.current has of predictions, into a plan of the same layout; into another one
// nothing. By the time that they are there another one may be in force, with other nodes, from
// another iteration on, or of other buckets.
void CopyPredictions(const Plan& from, Plan& to);

}  // namespace poseidon
