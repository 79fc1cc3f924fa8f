// Trainings of well-known nets with phantom payloads: what the planner predicts of them, and what
// becomes of them in virtual time. For tests and benchmarks of the planner.
#pragma once

#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

struct PlannedNet {
  const char* name;
  ModelSpec model;
};

// VGG19, GoogLeNet and ResNet-50, 32 samples a worker on a GPU of 4 Tflop/s; the models say their
// layers' times.
std::vector<PlannedNet> PlannedNets();

// A job on a network of which all of `bandwidth` can be used.
Job PlannedJob(int workers, int servers, const char* bandwidth, const char* latency,
               bool colocated);

// A layer, or several of one size, for 32 samples a worker. Times are milliseconds of each.
ModelSpec Layers(int count, int64_t floats, double forward_ms, double backward_ms);

// On 10 Gb/s without a message's cost; sums and updates take no time.
Job FreeLanesJob(int workers, int servers, Communication::Policy policy);

struct PlannedOutcome {
  double predicted = 0;  // seconds an iteration
  double simulated = 0;
  double least = 0;  // that no order of messages can undercut (Predictor::LeastSeconds)
};

// The scheduler's plan and what became of it, in the mean over the last iterations. `tried`: the
// plan is tried before (simulation/plan_trial.h), and what came of that is what was expected.
PlannedOutcome TrainAsPlanned(const Job& job, const ModelSpec& model, bool tried = false);

// All but TIME and ALL_ADAM, which nobody would use: the paper's baseline for unbalanced load.
inline constexpr Communication::Policy kComparedPolicies[] = {
    Communication::BYTES,    Communication::ALL_PS,    Communication::ALL_SFB,
    Communication::ALL_RING, Communication::ALL_TORUS, Communication::ALL_HALVING_DOUBLING};

}  // namespace poseidon
