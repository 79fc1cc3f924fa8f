// What a training would do on a cluster: some of its iterations in virtual time, with phantom
// payloads, and what came of them.
//
// The scheduler, servers and clients are the real ones (experiments/simulated_cluster.h). Workers
// compute as long as the model's layer times say; adding up gradients, updating and rebuilding
// gradients from factors take no time, a message takes its lane the network's message_cost.
// Functions here share nothing and may be called from several threads.
#pragma once

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Which iterations count: `measured` of them, after `warm_up` others. Both at least 1.
struct SteadyIterations {
  int warm_up = 2;
  int measured = 3;
};

// The exchange of workers in pairs (halving-doubling, torus; policy TIME may choose either) lets
// them drift apart for some twenty iterations; under the others they are steady after the second.
int WarmUpIterations(Communication::Policy policy);

// Means over the measured iterations, and over the workers where they differ.
struct SimulatedTraining {
  Plan plan;             // as the scheduler made it, with its prediction
  double iteration = 0;  // seconds
  double compute = 0;    // seconds of an iteration that a worker alone needs
  double busy = 0;       // share of the iteration that workers compute
  // Bytes an iteration of the machine that sends and receives most: bodies of gradients, values and
  // factors as they are on the network, without headers and control messages.
  double bytes_sent = 0;
  double bytes_received = 0;
};

// `job` has been checked (proto/job_config.h); its deadlines do not count, for nobody dies. Layers
// without times take what the job's flops say. Throws Error if the training fails.
SimulatedTraining SimulateTraining(const Job& job, const ModelSpec& model,
                                   const SteadyIterations& steady);

}  // namespace poseidon
