// SimulatedTrainer: client/session.h and the worker's training loop in virtual time, as an actor.
//
// Forward of a step begins when its layer's parameters for this iteration are there; then backward
// in descending order, each layer's gradient handed to the data lanes as soon as it is done.
// Between the worker's devices and its host there is a stream of copies each way, as
// planner/cost/device_copy_cost.h says: a gradient passes one before the data lanes get it, what
// these have brought up to date the other before it is fresh.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "client/bucket_progress.h"
#include "client/layer_timer.h"
#include "client/sync/gradient_buffers.h"
#include "client/sync/plan_transition.h"
#include "client/worker_control.h"
#include "core/trace.h"
#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"
#include "simulation/compute_timeline.h"
#include "simulation/copy_stream.h"
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
  Arithmetic arithmetic;
};

struct IterationTimes {
  Time begin{};        // the first step's forward may still have to wait
  Time end{};          // of the backward pass
  Duration exposed{};  // of these, those that computing stood still for parameters
};

struct TrainerRecord {
  std::vector<IterationTimes> iterations;
  // When the last iteration's updates of all layers were there.
  Time finished{};
};

class SimulatedTrainer : public Actor {
 public:
  struct Options {
    const TrainingWork* work = nullptr;
    const ModelSpec* model = nullptr;  // that this worker declares
    TrainerRecord* record = nullptr;
    ClusterModel cluster;       // of which the devices count
    double compute_factor = 1;  // computing takes so many times as long
    bool measure = false;       // tell the scheduler how long layers compute
    Trace* trace = nullptr;     // may be null
  };
  // `state` is the one that the node's WorkerControl fills. What the options point to outlives the
  // actor.
  SimulatedTrainer(ProgramFrame frame, std::shared_ptr<WorkerState> state, const Options& options);

  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  enum class Phase {
    kPreparing,
    kForward,
    kBackward,
    kAgreeing,   // before an iteration: waits for the one to pause before for another plan
    kPausing,    // before that one: waits for all layers to be fresh
    kLeaving,    // waits for the optimizer state; then prepares for the next plan
    kFinishing,  // waits for the last iteration's updates
    kFinished,
  };

  // A layer's gradient, or what a lane has of a bucket.
  struct Copied {
    int index = 0;
    int64_t iteration = 0;
    Time happened{};
  };

  void OnPlan(Outbox& outbox);
  void PlanCopies();
  void OnStartOfTraining(Outbox& outbox);
  void OnPauseRequest(Outbox& outbox);
  void BeginIteration(Outbox& outbox);
  void StartForward(Outbox& outbox);
  bool AllFresh() const;
  void TryPause(Outbox& outbox);
  void TryLeave(Outbox& outbox);
  void OnGradientAtHost(const Copied& layer, Outbox& outbox);
  void OnFresh(const Copied& bucket, Outbox& outbox);
  // Goes on if what the current step waits for is there.
  void TryStep(Outbox& outbox);
  void TryFinish(Outbox& outbox);
  void FinishForward(Outbox& outbox);
  void FinishBackward(Outbox& outbox);
  void FinishIteration(Outbox& outbox);
  void ReportLayerTimes(Outbox& outbox);
  void PostToLanes(MessageKind kind, int bucket, int64_t iteration, const Payload& body,
                   Outbox& outbox) const;
  void SendToScheduler(Envelope envelope, Outbox& outbox) const;
  void AddTrace(const char* name, Time begin, Time end);

  const SyncContext& context() const { return *state_->context; }
  const ComputeStep& step() const { return options_.work->timeline.steps[step_]; }
  Duration ComputeTime() const;  // of the step, in the current direction
  IterationTimes& times() { return options_.record->iterations.back(); }

  ProgramFrame frame_;
  std::shared_ptr<WorkerState> state_;
  Options options_;
  std::unique_ptr<BucketProgress> progress_;
  PauseAgreement pause_;
  PlanTransition transition_;
  CopyStream<Copied> to_host_;
  CopyStream<Copied> to_devices_;
  std::vector<Duration> to_host_time_;                  // by layer
  std::vector<std::vector<Duration>> to_devices_time_;  // by bucket and lane, from the first on
  wire::WorkerReport past_plans_;    // buckets and dropped frames of the plans before this one
  std::optional<LayerTimer> timer_;  // until the layers' times are known
  Phase phase_ = Phase::kPreparing;
  int64_t iteration_ = 0;
  size_t step_ = 0;
  bool waiting_ = false;  // for parameters
  // Since when the step waits or computes.
  Time since_{};
};

}  // namespace poseidon
