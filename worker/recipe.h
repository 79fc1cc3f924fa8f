// The recipe: what a job's `training` changes of how its solver trains, and what of the solver our
// own training loop does. Pure functions.
#pragma once

#include "caffe_adapter/net/solver.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "worker/trainer.h"

namespace poseidon {

// Everything but `from`. Paths are as the job and the solver have them.
TrainerOptions TrainerOptionsOf(const Job& job, const caffe::SolverParameter& solver);

// Changes a net's model: the update rule (scaled rate, warm-up, momentum correction, deferred where
// the loop makes the updates) and room for the factors of all passes of an iteration.
// Throws ConfigError for a recipe that the solver can't follow.
void ApplyRecipe(const Job& job, const caffe::SolverParameter& solver, ModelSpec& model);

}  // namespace poseidon
