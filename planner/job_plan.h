// The plan of a job: whatever its policy, and with predictions where the network is known.
#pragma once

#include "planner/cost/information_book.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// The job has been checked (proto/job_config.h). Policy TIME takes the defaults of Network where
// the job describes none; the other policies then make no predictions.
Plan PlanJob(const InformationBook& book, const Job& job);

}  // namespace poseidon
