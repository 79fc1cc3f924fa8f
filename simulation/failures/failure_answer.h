// What a job's failures cost: one that recovers from them, by its actors
// (simulation/failures/failure_simulation.h), and one that is started again from its newest
// snapshot, in closed form (simulation/failures/snapshot_restarts.h).
//
//   const RecoveryChoice choice = ParseRecoveryChoice("snapshot:30min");
//
// Functions without state.
#pragma once

#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/failures/failure_simulation.h"
#include "simulation/training_simulation.h"

namespace poseidon {

// What becomes of a job that loses a node.
struct RecoveryChoice {
  Recovery::Mode mode = Recovery::REPLACE;  // NONE: all of it starts again from a snapshot
  // Seconds of training between two snapshots; not set: what costs least.
  std::optional<double> interval;
};

// "replace", "shrink", "snapshot:INTERVAL" or "snapshot". Throws ConfigError that lists them.
RecoveryChoice ParseRecoveryChoice(const std::string& text);

// A duration above 0. Throws ConfigError that begins with `name`.
double ParsePositiveSeconds(const std::string& name, const std::string& text);

// Likewise until another process is in a lost one's place, which is at most as long as a job may be
// told to wait for it.
double ParseReplacementSeconds(const std::string& name, const std::string& text);

// "MTBF:DURATION", such as "720h:1min", to a scenario's first fields. Throws ConfigError that
// begins with `name`.
FailureScenario ParseFailures(const std::string& name, const std::string& text);

// Seconds that a snapshot takes if nobody says it: parameters and optimizer state at 1 GB/s.
double SnapshotSeconds(const ModelSpec& model);

// Times in seconds.
struct RestartAnswer {
  double interval = 0;  // of training between two snapshots
  bool best = false;    // of all intervals
  double write = 0;     // a snapshot
  // From a failure until training goes on: until it is noticed, the replacement is there, all
  // processes have joined and have the parameters, of which the snapshot was read first.
  double restart = 0;
  double goodput = 0;  // in expectation
  // Of the job that starts again, without failures. One that recovers may train at another pace,
  // for all its updates are its workers', on their hosts, unless it updates at servers.
  double iteration = 0;
};

// Of `job`, of which `training` is simulated without failures. `write`: not set is SnapshotSeconds.
RestartAnswer AnswerOfRestarts(const Job& job, const ModelSpec& model,
                               const FailureScenario& scenario, const SimulatedTraining& training,
                               std::optional<double> interval, std::optional<double> write);

struct FailureAnswer {
  FailureScenario scenario;
  RecoveryChoice choice;
  // Of the actors; not set if the job starts again.
  std::optional<FailureCosts> costs;
  RestartAnswer restarts;  // for comparison, where the job recovers

  double Goodput() const { return costs ? costs->Goodput() : restarts.goodput; }
  // Of very many losses, as they come between `nodes` nodes, if each costs what the simulated ones
  // do. Not set where the job starts again or nobody comes in the place of the lost, and where
  // losses are so frequent that they come together.
  std::optional<double> LongRunGoodput(int nodes) const;
};

// Throws ConfigError if the job, which has a recovery mode, is to recover and can't: one of one
// worker, for nobody would be left that has the parameters, and one of local steps, with which each
// process has some that nobody else has.
void CheckCanRecover(const Job& job);

// `job` is checked and has the choice's recovery mode. `restarting` is what is simulated, without
// failures, of the same job with mode NONE; only `restarts` come of it. Throws as CheckCanRecover
// and SimulateFailures do.
FailureAnswer AnswerFailures(const Job& job, const ModelSpec& model,
                             const FailureScenario& scenario, const RecoveryChoice& choice,
                             std::optional<double> snapshot_seconds,
                             const SimulatedTraining& restarting, const SimulationControl& control);

}  // namespace poseidon
