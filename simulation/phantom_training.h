// A training of a net on a cluster as SimulatedCluster takes it: phantom payloads, layers that
// compute as long as the model says, and machines and links as the job describes them.
#pragma once

#include <cstdint>

#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/compute_timeline.h"
#include "simulation/simulated_cluster.h"

namespace poseidon {

// How long a worker that does not deviate computes: layers without times what the job's flops say.
ComputeTimeline TimelineOf(const Job& job, const ModelSpec& model);

// `job` has been checked (proto/job_config.h). Layers without times take what the job's flops say;
// a model without an update rule gets one, as phantoms are updated by any.
SimulatedClusterOptions PhantomTraining(const Job& job, const ModelSpec& model, int64_t iterations);

}  // namespace poseidon
