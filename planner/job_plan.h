// The plan of a job: whatever its policy, and with predictions where the network is known.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>

#include "planner/cost/information_book.h"
#include "planner/time_planner.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Throws ConfigError for what a program with this rule needs and the job's config does not let it
// have. PlanJob does so, too; who knows the rule can ask before there are workers.
void CheckUpdate(const UpdateRuleSpec& rule, const Job& job);

// The job has been checked (proto/job_config.h). Policy TIME takes the defaults of Network where
// the job describes none; the other policies then make no predictions.
//
// `trial` may be empty. It is of policy TIME only, and asked about plans for `job` and the book's
// model; by several threads at once, where the machine has cores for them. When `stop` is requested
// the search ends, and the plan is any. `searched` is told of the searches (planner/time_planner.h)
// on the calling thread, unless they were stopped.
using JobPlanTrial =
    std::function<std::optional<double>(const Plan&, const Job&, const ModelSpec&, TrialLength)>;
Plan PlanJob(const InformationBook& book, const Job& job, const JobPlanTrial& trial = {},
             const std::stop_token& stop = {}, const SearchListener& searched = {});

// Makes a job's plan of what the workers have declared.
using JobPlanner = std::function<Plan(const InformationBook&, const Job&)>;

}  // namespace poseidon
