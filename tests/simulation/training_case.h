// Small trainings with real arithmetic, and what they must come to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "simulation/simulated_cluster.h"

namespace poseidon {

// A deterministic stand-in for a net: gradients depend on the parameters, the worker and the
// iteration, so that a stale, lost, repeated or misplaced chunk changes the result. Inner products
// make factors and, where they must be dense, multiply them themselves.
Arithmetic MakeArithmetic(const ModelSpec& model);

// A job with a random model, cluster, plan and timing, on a network without faults. The same seed
// gives the same job; `network.seed` is left alone.
SimulatedClusterOptions RandomTraining(uint64_t seed);

// Another plan for the same job, with a random scheme and chunk size for each bucket; sums are
// taken in order if the job says so, and the workers make the updates if it recovers.
wire::PlanAndModel RandomPlan(const SimulatedClusterOptions& options, uint64_t seed);

// At that time the scheduler's program, if it lives, asks to go over to the plan.
void AskAt(Time when, const wire::PlanAndModel& plan, SimulatedCluster& cluster);
// Likewise to end training before its last iteration.
void AskToStopAt(Time when, SimulatedCluster& cluster);
// The program of a worker, if it lives, asks to leave the job.
void AskToLeaveAt(Time when, const NodeId& worker, SimulatedCluster& cluster);

// A layer of one blob.
LayerSpec DenseLayer(const std::string& name, int64_t floats);
// With a bias.
LayerSpec InnerProductLayer(const std::string& name, int64_t outputs, int64_t inputs, int64_t rows);
UpdateRuleSpec PlainRule();

// A job of `workers` and `servers` that trains `layers`, each a step of forward and backward time
// `step`, with real arithmetic.
SimulatedClusterOptions SmallTraining(int workers, int servers, std::vector<LayerSpec> layers,
                                      int64_t iterations, Duration step);

// 4 workers, 2 servers, 2 lanes; two PS layers of several KV pairs below an SFB layer.
SimulatedClusterOptions MixedTraining(int64_t iterations, Duration step);

bool IsData(const Envelope& envelope);

// Every node that was not killed has ended with `code`.
void ExpectAllEnded(const SimulatedCluster& cluster, ExitCode code);

using Parameters = std::vector<std::vector<float>>;  // by layer

// What one process computes that averages the gradients of `workers` and applies core's Update.
Parameters TrainSerially(const TrainingWork& work, int workers);
// How many workers' gradients each iteration has.
using WorkersOf = std::function<int(int64_t iteration)>;
Parameters TrainSerially(const TrainingWork& work, const WorkersOf& workers);

// A worker's parameters after a run.
Parameters ParametersOf(const SimulatedCluster& cluster, int rank);

// The largest difference between two, relative to the larger of 1 and the value.
double Difference(const Parameters& a, const Parameters& b);

// By how much two trainings of this work may differ (Difference) that take their sums in another
// order: several times what TrainSerially differs from itself when every value, first and updated,
// and every gradient is moved by one unit in the last place. A lost, repeated or stale gradient is
// far beyond. Factors of inner products and codecs are not moved.
//
//   EXPECT_LT(Difference(found, TrainSerially(work, 4)), RoundingBound(work, 4));
double RoundingBound(const TrainingWork& work, int workers);
double RoundingBound(const TrainingWork& work, const WorkersOf& workers);

// No test's virtual time goes on beyond this.
constexpr Time kForever = Seconds(100000);

}  // namespace poseidon
