// `poseidon simulate --failures`: what nodes that fail cost the training that is simulated.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "simulation/failures/failure_answer.h"

namespace poseidon {

struct FailureQuestion {
  FailureScenario scenario;
  RecoveryChoice choice;
  std::optional<double> snapshot_seconds;  // not set: SnapshotSeconds of the model
};

// From the flags of `poseidon simulate --help`; nullopt without --failures. Throws ConfigError for
// what is wrong, and for flags that say nothing without --failures.
std::optional<FailureQuestion> FailureQuestionFromFlags();

// The job with the recovery that is asked about, and the heartbeats that flags say.
void SetRecovery(const FailureQuestion& question, Job& job);

// Images a second without failures: of the job, and of one that starts again from a snapshot.
struct ImageRates {
  double job = 0;
  double restarting = 0;
};

// For people: a line a quantity, and what the numbers are of.
std::string FailureText(const FailureAnswer& answer, const Job& job, const ImageRates& rates);

// For programs: `mtbf_seconds` of a node, `replacement_seconds`, `seed`, `recovery` (replace,
// shrink, snapshot), `nodes`, `goodput`, `images_per_second`; `recovered` (null if the job starts
// again) with `losses`, `recoveries`, `wall_seconds`, `kept_iterations`, `simulated_iterations`,
// `redone_iterations`, `workers` that are left, and as means over the recoveries `detected_ms`,
// `restored_ms`, `total_ms`, beside `longest_ms`, and `seconds_of_a_loss`; `long_run_goodput` (null
// if it is not known); `restarted` with `goodput`, `images_per_second`, `iteration_ms` (without
// failures), `interval_seconds`, `best_interval`, `snapshot_seconds`, `restart_seconds`.
nlohmann::ordered_json FailureJson(const FailureAnswer& answer, const Job& job,
                                   const ImageRates& rates);

}  // namespace poseidon
