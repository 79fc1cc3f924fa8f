// SimulatedTrainer: a worker's training loop in virtual time, as an actor: how long computing and
// copies take. What it may do when is the same WorkerProtocol's (client/worker_protocol.h) that a
// real worker runs.
//
// Computing goes on when the parameters that it needs are there (simulation/compute_walk.h), and a
// layer's gradient is handed to the protocol as soon as it is done and has come to the host
// (simulation/device_copies.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/deferred/deferred_layers.h"
#include "client/pace/compute_disturbance.h"
#include "client/worker_protocol.h"
#include "core/arithmetic/gradient_buffers.h"
#include "core/trace.h"
#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"
#include "simulation/compute_timeline.h"
#include "simulation/compute_walk.h"
#include "simulation/device_copies.h"
#include "simulation/simulated_program.h"
#include "transport/actor.h"

namespace poseidon {

// What simulated workers compute. Without `gradient` nothing: all data are phantoms.
struct Arithmetic {
  // Worker 0's first parameters of a layer.
  std::function<void(int layer, std::span<float> values)> initialize;
  // A worker's gradient (or factors) of a layer, from the layer's parameters.
  std::function<void(int rank, int64_t iteration, int layer, std::span<const float> values,
                     const GradientBuffers& gradient)>
      gradient;
};

// What all workers of a cluster do.
struct TrainingWork {
  ModelSpec model;
  ComputeTimeline timeline;
  int64_t iterations = 1;
  // Whether the others hear that there are so many, as of a solver's; a PyTorch program just ends.
  bool tells_iterations = true;
  Arithmetic arithmetic;
  DeferredUpdate::Options deferred;  // if the model's update rule is
};

struct TrainerRecord {
  std::vector<IterationTimes> iterations;
  // When the last iteration's updates of all layers were there.
  Time finished{};
  // The worker's memory under the present plan; null before the first.
  std::shared_ptr<const SyncContext> context;
};

class SimulatedTrainer : public Actor {
 public:
  struct Options {
    const TrainingWork* work = nullptr;
    const ModelSpec* model = nullptr;              // that this worker declares, with its inputs
    const Communication* communication = nullptr;  // of the job
    wire::TrainingInputs inputs;
    TrainerRecord* record = nullptr;
    ClusterModel cluster;       // of which the devices count
    double compute_factor = 1;  // computing takes so many times as long
    ComputeDisturbance disturbance;
    bool measure = false;    // tell the scheduler how long layers compute
    Trace* trace = nullptr;  // may be null
  };
  // `plans` is the one that the node's WorkerControl fills. What the options point to outlives the
  // actor.
  SimulatedTrainer(ProgramFrame frame, std::shared_ptr<PlanHandover> plans, const Options& options);

  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  // Does what the protocol's phase lets be done.
  void Proceed(Outbox& outbox);
  void OnPlan(Outbox& outbox);
  // The job has lost a node: whatever is being done is of no use.
  void Abandon(Outbox& outbox);
  // Whether the layer has the parameters for `iteration`, updated here where that is the program's
  // to do.
  bool IsReady(int layer, int64_t iteration);
  bool AllReady();
  // Goes on if what the next step waits for is there.
  void TryStep(Outbox& outbox);
  void OnStepDone(Outbox& outbox);
  void OnFresh(const DeviceCopies::Part& bucket, Outbox& outbox);
  void FinishIteration(Outbox& outbox);
  void Finish(Outbox& outbox);

  ProgramFrame frame_;
  Options options_;
  WorkerProtocol protocol_;
  std::optional<DeferredLayers> deferred_;  // if the rule is, once there is a plan
  int64_t images_ = 0;                      // an iteration
  bool planned_ = false;                    // has had a plan, and set what first values are its own
  ComputeWalk walk_;
  DeviceCopies copies_;
};

}  // namespace poseidon
