// What failures cost a job that recovers from them (docs/recovery.md): the actors of the scheduler,
// the servers and the workers in virtual time, whose processes die and are started again.
//
// Between two losses there may be days in which each iteration takes as long as the one before.
// Of these the actors do those that are near a loss: from the moment of the loss until the
// exchange is as it was before, which all recovery is, and then to the next loss's iteration. Whole
// iterations between are counted with the time that one takes, and not simulated.
//
//   FailureScenario scenario{.mtbf = 30 * 86400, .replacement = 60};
//   SimulateFailures(job, model, scenario).Goodput()
//
// Functions here share nothing and may be called from several threads.
#pragma once

#include <cstdint>

#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/simulation_watch.h"

namespace poseidon {

// Workers and servers fail, each by itself; the scheduler does not. Nobody sees a process die: the
// others know by the job's heartbeat deadline.
struct FailureScenario {
  double mtbf = 0;  // mean seconds from the begin of a process to its failure, above 0
  // Seconds from a failure until another process begins in the place. With recovery.mode SHRINK
  // nobody comes.
  double replacement = 0;
  uint64_t seed = 1;
  int losses = 20;  // after which the answer is given; at least 1
  // Simulates every iteration. For tests of what is said above.
  bool whole = false;
};

// Times in seconds; those of recoveries are means, as summary.json has them of a real job.
struct FailureCosts {
  double iteration = 0;  // that nobody disturbs
  // From the first moment at which a node could fail until the last loss is recovered.
  double wall = 0;
  // Iterations in this time that were not done again, each by the share of the workers that did it.
  double kept = 0;
  int64_t simulated = 0;  // whole ones in this time, by the actors
  int64_t counted = 0;    // and those that were not simulated
  int losses = 0;
  int recoveries = 0;  // one may be of several losses
  int64_t redone = 0;  // iterations that a worker had begun, and that were begun once more
  double detected = 0;
  double restored = 0;
  double longest = 0;  // of detected and restored together
  int workers = 0;     // that are left

  // The share of the time that went into what is kept.
  double Goodput() const { return kept * iteration / wall; }
  // Seconds that went into nothing that is kept, for each loss.
  double SecondsOfALoss() const { return (wall - kept * iteration) / losses; }
};

// `job` has been checked, and has a recovery mode. Its heartbeats, deadlines and give_up_after
// count, but that it waits for replacements as long as they take. Throws ConfigError if the
// scenario leaves no worker or no server, and Error if the job ends by its losses or the simulation
// needs more memory than `control` says.
FailureCosts SimulateFailures(const Job& job, const ModelSpec& model,
                              const FailureScenario& scenario,
                              const SimulationControl& control = {});

}  // namespace poseidon
