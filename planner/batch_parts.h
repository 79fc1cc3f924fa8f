// The parts of the batch that workers of different speed get, so that all of them are done at about
// the same time.
//
//   DivideBatch(128, {2, 2, 2, 1})  ->  {37, 37, 36, 18}
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Divides `samples`, at least one a worker, in proportion to the workers' speeds, which are above 0
// and of any unit. Parts are whole samples and at least 1; where no part is raised to that, each is
// less than one sample from its exact share.
std::vector<int64_t> DivideBatch(int64_t samples, const std::vector<double>& speeds);

// Gives a plan of a job with a balanced batch its first parts: those of the config, or of
// what all workers have of the model's batch in a pass by how fast the cluster says that the
// workers are. Nothing for other jobs.
void SetFirstParts(const Job& job, const ModelSpec& model, Plan& plan);

}  // namespace poseidon
