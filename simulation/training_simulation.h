// What a training would do on a cluster: some of its iterations in virtual time, with phantom
// payloads, and what came of them.
//
// The scheduler, servers and clients are the real ones (simulation/simulated_cluster.h). Workers
// compute as long as the model's layer times say and copy as planner/cost/device_copy_cost.h says;
// lanes are busy with messages as simulation/processing_costs.h says. docs/cost_model.md, "What a
// cluster would do", is the whole list. Functions here share nothing and may be called from several
// threads.
#pragma once

#include <string>

#include "proto/experiment.pb.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/simulation_watch.h"

namespace poseidon {

// Which iterations count: `measured` of them, after `warm_up` others. Both at least 1.
struct SteadyIterations {
  int warm_up = 2;
  int measured = 3;
};

// The exchange of workers in pairs (halving-doubling, in part the torus; policy TIME may choose
// either) lets them drift apart for some iterations, with staleness or on machines that differ fast
// workers first use up their lead; else they are steady after the second.
int WarmUpIterations(const Job& job);

// Means over the measured iterations, and over the workers where they differ. With local steps
// (communication.local_steps) of a step; the plan's prediction is of an iteration, which is so
// many.
struct SimulatedTraining {
  Plan plan;             // as the scheduler made it, with its prediction
  double iteration = 0;  // seconds
  double compute = 0;    // seconds that a worker computes in it, without updates
  double busy = 0;       // share of the iteration that workers compute
  // Seconds from the begin of all processes until the first iteration could have begun: they join,
  // and get worker 0's parameters.
  double start = 0;
  // Bytes an iteration of the machine that sends and receives most: bodies of gradients, values and
  // factors as they are on the network, without headers and control messages.
  double bytes_sent = 0;
  double bytes_received = 0;
  // Sent and received, the mean over all machines with a worker or a server.
  double mean_bytes = 0;
  std::string schemes;  // SchemeSummary of the plan
};

// SimulatedTraining's `compute`, which takes no simulation: also of what a real replay of the model
// takes. `job` has been checked, and says how machines are disturbed.
double SecondsAlone(const Job& job, const ModelSpec& model);

// Learnable floats by scheme, in the order of the enumeration: "PS 20.0M, SFB 123.6M".
std::string SchemeSummary(const Plan& plan);

// `job` has been checked (proto/job_config.h); its deadlines do not count, for nobody dies. Layers
// without times take what the job's flops say. `condition` makes some workers or their machines
// slower or faster than the job says, which the planner does not know. Throws ConfigError if the
// condition names a worker that there is not, or the network is too slow for the model, and Error
// if the simulation needs more memory than `control` says or the training fails.
SimulatedTraining SimulateTraining(const Job& job, const ModelSpec& model,
                                   const SteadyIterations& steady, const Condition& condition = {},
                                   const SimulationControl& control = {});

}  // namespace poseidon
