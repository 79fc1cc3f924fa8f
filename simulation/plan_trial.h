// A trial of a plan: what an iteration takes the actors themselves in virtual time, before a job
// trains under the plan. What the planner predicts is off by up to a tenth where the order of
// messages decides; this is not.
//
//   Plan plan = PlanByTrial(book, job);
#pragma once

#include <optional>

#include "planner/cost/information_book.h"
#include "planner/time_planner.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Seconds of a steady iteration; nullopt if the trial would take longer than a second or two, or
// more than 2 GB, or if a long one had no more iterations than a short one. The plan is of `job`,
// which has been checked, and `model`, which need not have times. Thread-safe.
std::optional<double> TryPlan(const Plan& plan, const Job& job, const ModelSpec& model,
                              TrialLength length);

// PlanJob with trials: what all programs plan by.
Plan PlanByTrial(const InformationBook& book, const Job& job);

}  // namespace poseidon
