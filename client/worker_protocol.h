// WorkerProtocol: what a worker's program does in a job, as a protocol core without I/O: it gets
// messages and the program's calls, and answers with messages and with the phase it is in. It waits
// for nothing and has no clock. It throws only what Declare and a plan that does not fit the model
// say. WorkerSession blocks around it on real sockets,
// SimulatedTrainer is driven by virtual time; both carry out the same rules, which are here.
//
//   phase        what ends it
//   kJoining     kJoined
//   kDeclaring   Declare
//   kPlanning    kPlan: buffers are there
//   kPreparing   Begin; before it worker 0 may fill in its first values
//   kStarting    kStart, when all nodes are ready; worker 0's values go out
//   kTraining    EndIteration: the next iteration, or one of the following two; or Finish
//   kAgreeing    kPauseAt: the scheduler has said before which iteration all pause for another plan
//   kPausing     LeavePlan, once AllFresh(): this is the iteration to pause before
//   kFetching    the servers' optimizer state is here: kPlanning of the next plan
//   kHeld        kPlan: a node of the job is lost, or the exchange hangs; any phase from kPreparing
//                on goes here when kHold comes. The next plan begins at an iteration that all can
//                go back to: kPreparing, with the values of that
//   kFinished    -
//
// An iteration of a program, under one plan:
//
//   for each layer, ascending:   until IsFresh(l, iteration()): hand on what comes;  forward
//   for each layer, descending:  backward;  GradientReady(l, iteration(), now, outbox)
//   EndIteration(progress, outbox)
//
// Messages to the node's own lanes and to the scheduler are put in the outbox; whoever drives this
// carries it out. Times are the program's own affair: what it measured it writes into Progress and
// WorkerReport before it hands them over.
//
// Not thread-safe: the training thread's, or the simulated program's lane's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/bucket_progress.h"
#include "client/pace/compute_spread.h"
#include "client/plan_handover.h"
#include "client/sync/plan_transition.h"
#include "client/sync/syncer.h"
#include "core/time.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

// Throws ConfigError for a name of the model or of a layer, or a layer's type, that is no UTF-8.
void CheckModelNames(const ModelSpec& model);

class WorkerProtocol {
 public:
  enum class Phase {
    kJoining,
    kDeclaring,
    kPlanning,
    kPreparing,
    kStarting,
    kTraining,
    kAgreeing,
    kPausing,
    kFetching,
    kHeld,
    kFinished,
  };

  // `plans` is the one that the node's WorkerControl fills.
  explicit WorkerProtocol(std::shared_ptr<PlanHandover> plans) : plans_(std::move(plans)) {}

  Phase phase() const { return phase_; }
  // From kDeclaring on.
  int rank() const { return rank_; }
  uint64_t epoch() const { return epoch_; }
  // View.base: the job's number, which no other one has; once there is a plan.
  uint64_t base() const { return context_->epoch - static_cast<uint64_t>(plan().number()); }
  // From kPreparing on; of the present plan, in kHeld of the one before.
  const SyncContext& context() const { return *context_; }
  const std::shared_ptr<SyncContext>& shared_context() const { return context_; }
  const Plan& plan() const { return context_->plan.plan(); }
  const ModelSpec& model() const { return context_->plan.model(); }
  // Whether the worker is the first of the present plan's: the one that tests and writes snapshots.
  bool leads() const { return context_->place == 0; }
  // That which is computed, or whose forward pass is next. Goes back with kHeld's end.
  int64_t iteration() const { return iteration_; }
  // Whether the layer may be used in the forward pass of `iteration`.
  bool IsFresh(int layer, int64_t iteration) const { return progress_->IsFresh(layer, iteration); }
  bool AllFresh() const;
  // Of the present plan.
  const BucketProgress& progress() const { return *progress_; }

  // What came to the application lane. kEnd and kFailed are the program's: ignored, as is all that
  // does not fit the phase or is of an earlier plan.
  void Receive(const Envelope& envelope, Outbox& outbox);
  // A kBucketFresh that the program has held back until now, as it does while a copy takes its
  // time.
  void BucketFresh(int bucket, int64_t iteration, Time happened);

  // `inputs`: what the worker has found on its machine; the scheduler ends the job where workers
  // have what does not fit together. Of first_iteration, which is not 0 if training goes on from a
  // snapshot, worker 0's counts. Throws as CheckModelNames does.
  void Declare(const ModelSpec& model, const wire::TrainingInputs& inputs, Outbox& outbox);
  // Worker 0 in kPreparing, if training goes on from a snapshot: the optimizer state of all
  // parameters in the model's order, OptimizerStatePerParameter(rule) floats for each.
  void RestoreOptimizerState(std::vector<float> state);
  void Begin(Outbox& outbox);

  // Of an update rule of torch.optim's: the parameter groups' numbers for the gradients that are
  // ready from now on; as many as the model's blobs belong to.
  void SetGroups(std::vector<ParameterGroup> groups) { groups_ = std::move(groups); }
  // The layer's gradient of `iteration`, the current one or the one before, is in its buffers. Adds
  // to it first what an earlier plan's codec has not sent.
  void GradientReady(int layer, int64_t iteration, Time now, Outbox& outbox);
  // Whether there is such; the layer's first gradient under this plan must come to its buffers
  // then.
  bool HasResidual(int layer) const { return transition_.HasResidual(layer); }
  // `progress` lacks only the iteration. Without total_iterations none is the last.
  void EndIteration(wire::Progress progress, Outbox& outbox);
  // Whether the job ends training before iteration(), because somebody has asked for it.
  bool stops() const { return stops_; }
  // Whether somebody has asked for a snapshot, also before the job went back; of worker 0.
  bool snapshot_is_wanted() const { return snapshot_wanted_; }
  // It is written, or can't be.
  void AnswerSnapshotRequest() { snapshot_wanted_ = false; }
  // Takes from the present plan's buffers what the next plan's will need; nobody may be using them.
  void LeavePlan(Outbox& outbox);

  // Worker 0 in kTraining, when all layers are fresh and before its first GradientReady of the
  // iteration: asks the servers for the optimizer state that they keep.
  void BeginCollecting(Outbox& outbox);
  // Whether something is still to come.
  bool collecting() const { return collected_ != nullptr && !collected_->complete(); }
  // When it has come: of all parameters, as RestoreOptimizerState has it.
  std::vector<float> TakeCollected();

  // What the net has beside the model, and training changes. In kTraining, before the first
  // iteration of a plan that begins after a loss, the first of the workers that have values sends
  // its own to those that have none, if there are any, who await them.
  bool sends_statistics() const;
  bool awaits_statistics() const;
  void SendStatistics(std::span<const float> statistics, Outbox& outbox) const;
  // That have come; null before, and under a plan without.
  const std::optional<Payload>& statistics() const { return statistics_; }
  // Those that were awaited are the program's own by now, or its net has none. Until then the
  // worker lacks something that the plan starts with, and nobody gets anything from it after a
  // loss. A program that goes on without says so by its first gradient.
  void TookStatistics();

  // The worker wants to leave the job. The scheduler ends it when it can be done without, or says
  // why it can't.
  void Leave(Outbox& outbox);
  // Whether it does, also where the scheduler has not heard so.
  bool leaves() const { return leaves_; }

  // `report` lacks only what the plans have counted, buckets, peers and dropped frames, and the
  // pace.
  void Finish(wire::WorkerReport report, Outbox& outbox);

  // Sends it from this worker, in the job's epoch.
  void SendToScheduler(Envelope envelope, Outbox& outbox) const;

 private:
  bool IsOfPresentPlan(const Envelope& envelope) const;
  void OnJoined(const Envelope& envelope, Outbox& outbox);
  // What this worker has said last, as it may have been lost with a connection.
  void SayAgain(Outbox& outbox) const;
  void OnPlan();
  void OnHold(const Envelope& envelope);
  // What the plan starts with is put into its memory, from that of the plan before.
  // Throws Error if the first plan starts with what this worker should have and has not.
  void CheckStart() const;
  void TakeStart(const std::shared_ptr<SyncContext>& before);
  // Likewise, in memory of its own, after a hold.
  void TakeStartAfterHold(const std::shared_ptr<SyncContext>& before);
  // Where training has not begun, what it goes on from is what it was.
  void RestoreStart();
  // To the node's control lane, which tells the scheduler; the start comes then, once more if need
  // be.
  void SayReady(Outbox& outbox) const;
  void OnStart(const Envelope& envelope, Outbox& outbox);
  // What may have been lost with a scheduler: how iterations from `from` on went, and the report.
  void ReportAgain(int64_t from, Outbox& outbox) const;
  // While the start under a later view is awaited: that it is ready for that.
  void SayFinished(Outbox& outbox) const;
  void OnOptimizerState(const Envelope& envelope, Outbox& outbox);
  void OnPauseRequest(Outbox& outbox);
  void SayOffer(int64_t iteration, Outbox& outbox) const;
  void SayPaused(Outbox& outbox) const;
  void SendLeave(Outbox& outbox) const;
  // The phase in which iteration_ begins.
  void EnterIteration();
  void AddResidual(int layer, int64_t iteration);
  // What the bucket's update of this iteration takes from the groups; empty where it takes nothing.
  Payload SettingsOf(int bucket) const;
  // Counts the present plan's traffic among those before it.
  void AddToPastPlans();
  void FetchOptimizerState(const PlanTransition& transition, Outbox& outbox) const;
  // Nothing of the plan left is missing any more: tells the scheduler.
  void TryPause(Outbox& outbox);
  void PostToLanes(MessageKind kind, int bucket, int64_t iteration, const Payload& body,
                   Outbox& outbox) const;
  void PostToLanes(Envelope envelope, Outbox& outbox) const;

  std::shared_ptr<PlanHandover> plans_;
  std::shared_ptr<SyncContext> context_;
  std::optional<BucketProgress> progress_;
  PauseAgreement pause_;
  std::vector<ParameterGroup> groups_;
  PlanTransition transition_;
  // By RestoreOptimizerState. In a job that recovers the start may have to be made again, until an
  // iteration is done; servers have the only other copy.
  std::vector<float> restored_;
  std::unique_ptr<PlanTransition> collected_;  // from BeginCollecting to TakeCollected
  wire::WorkerReport past_plans_;  // buckets, peers and dropped frames of the plans before this one
  // What has been said to the scheduler and may have to be said to another one.
  Payload declaration_;                // until there is a plan
  int64_t first_iteration_ = 0;        // that was declared
  std::deque<wire::Progress> done_;    // the last iterations, in a job that recovers
  ComputeSpread spread_;               // of all that this process has done
  Payload report_;                     // in kFinished
  std::optional<Payload> statistics_;  // under the present plan
  Phase phase_ = Phase::kJoining;
  uint64_t epoch_ = 0;
  int rank_ = -1;
  int64_t iteration_ = 0;
  bool awaits_start_ = false;  // under a later view than that of the last one
  bool plan_waits_ = false;    // it has come before the model was declared
  bool stops_there_ = false;   // where pause_ has been agreed
  bool stops_ = false;
  bool snapshot_wanted_ = false;
  bool leaves_ = false;
  // What the present plan has counted is among past_plans_, and what it leaves to the next in
  // transition_.
  bool left_ = false;
};

}  // namespace poseidon
