// The recipe: what a job's `training` changes of how its solver trains, and what of the solver our
// own training loop does. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "caffe_adapter/net/solver.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "worker/trainer.h"

namespace poseidon {

// Everything but `from` and who the snapshots' owner is. Paths are as the job and the solver have
// them.
TrainerOptions TrainerOptionsOf(const Job& job, const caffe::SolverParameter& solver);

// Of this job's snapshots; `number` is WorkerSession::job_number. Two jobs of one config may run at
// once, with schedulers of one address on machines of one file system.
std::string SnapshotOwner(const Job& job, uint64_t number);

// Changes a net's model: the update rule (scaled rate, warm-up, momentum correction, deferred where
// the loop makes the updates) and room for the factors of all passes of an iteration.
// Throws ConfigError for a recipe that the solver can't follow.
void ApplyRecipe(const Job& job, const caffe::SolverParameter& solver, ModelSpec& model);

// Throws ConfigError if the train net has a layer that steps through time and one that reads
// records, and the job does not say whether these are shuffled.
void CheckOrder(const Training& training, const SolverNet& train);

// Throws ConfigError if the job gives all layers of the train net one batch, and the net says
// several: what they are to one another would be lost.
void CheckOneWrittenBatch(const Training& training, const SolverNet& train);

// Throws ConfigError if labels are to be smoothed and no layer of the train net would do it: `net`
// is the description of `train`.
void CheckSmoothing(float label_smoothing, const NetDescription& net, const SolverNet& train);

}  // namespace poseidon
