// `poseidon simulate`: what a training of a net would do on a cluster, without either.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/planning/failures.h"
#include "cli/planning/plan.h"
#include "core/error.h"
#include "core/time.h"
#include "simulation/training_simulation.h"

namespace poseidon {

// Times in seconds.
struct ClusterAnswer {
  int workers = 0;
  int servers = 0;
  int gpus_per_node = 1;
  int64_t batch = 0;  // samples of a worker, all its GPUs together
  std::vector<SampleInput> inputs;
  SimulatedTraining training;
  Limits limits;  // by prediction
  Job job;
  std::optional<FailureAnswer> failures;  // if it was asked what they cost

  double ImagesPerSecond() const;
  // There are `failures`.
  ImageRates RatesWithoutFailures() const;
  int Gpus() const { return workers * gpus_per_node; }
  // Against one GPU that computes alone, without updates.
  double Speedup() const;
  // The speedup's share of what it could be.
  double Efficiency() const;
};

// `iterations` as in `poseidon simulate --help`. Throws ConfigError if there are fewer than 3, and
// as PlanModel and SimulateTraining do. With `failures` the process logs no warnings afterwards.
ClusterAnswer SimulateModel(const PlanOptions& options, int iterations,
                            const SimulationControl& control = {},
                            const std::optional<FailureQuestion>& failures = std::nullopt);

// What `poseidon simulate` says on standard error while it works: nothing for the first seconds,
// then, every few, how far it is and about how much time is left. Not thread-safe.
class SimulationReport {
 public:
  SimulationReport(std::ostream& out, Time start)
      : out_(out), start_(start), next_(start + kFirst), training_(start) {}

  void On(const SimulationProgress& progress, Time now);

 private:
  static constexpr Duration kFirst = std::chrono::seconds(3);
  static constexpr Duration kInterval = std::chrono::seconds(5);

  std::ostream& out_;
  Time start_;
  Time next_;
  Time training_;  // about when the first of its messages arrived
};

// For people: a line a quantity.
std::string SimulationTable(const ClusterAnswer& answer);

// For programs: `workers`, `servers`, `gpus_per_node`, `batch`, `inputs` (as PlanJson),
// `compute_ms`, `iteration_ms`, `predicted_ms` (the planner's), `estimated` (as PlanJson),
// `images_per_second`, `speedup`, `efficiency`, `gpu_busy`, `bytes_per_node` with `sent` and
// `received` (an iteration, by the most loaded machine), `limits` (as PlanJson), and with failures
// `failures` (as FailureJson).
std::string SimulationJson(const ClusterAnswer& answer);

// Reads the flags of `poseidon simulate --help` and prints the answer. Throws Error.
ExitCode SimulateVerb();

}  // namespace poseidon
