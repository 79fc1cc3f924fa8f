// What workers or the scheduler would refuse of a training when all have been started, found out
// before.
#pragma once

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/solver.h"
#include "proto/job.pb.h"
#include "proto/job_config.h"

namespace poseidon {

// Throws ConfigError for a recipe, a batch or an order of records that does not go with the solver
// or the layers of its train net. Reads no data.
void CheckRecipe(const Job& job, const Solver& solver);

// Throws DataError, with how to make them, if data that training and its tests read are not there,
// and ConfigError for nets that can't be computed. Returns the description of the train net, of a
// device's part of training.batch_per_worker, or with the batches that the net says itself.
NetDescription CheckData(const JobConfig& config, const Solver& solver);

// Throws ConfigError if the train net can't have what the job asks for: a balanced batch, smooth
// labels. `net` is the description of `train`, of any batch.
void CheckTrainNet(const Job& job, const NetDescription& net, const SolverNet& train);

}  // namespace poseidon
