// The training loop: walks a net's steps, lets gradients go as they are born, waits for a layer's
// parameters just before its next forward pass.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "caffe_adapter/files/found_snapshot.h"
#include "client/deferred/deferred_update.h"
#include "client/pace/layer_timer.h"
#include "client/worker_session.h"
#include "proto/wire.pb.h"
#include "worker/done_iteration.h"
#include "worker/pass_schedule.h"
#include "worker/snapshots.h"
#include "worker/worker_net.h"

namespace poseidon {

// Names and meanings are Caffe's SolverParameter's.
struct TrainerOptions {
  int64_t max_iter = 1;
  int64_t display = 0;        // worker 0 logs the loss every so many iterations; 0: never
  int64_t average_loss = 1;   // iterations that the logged loss is the mean of
  int64_t test_interval = 0;  // worker 0 tests every so many iterations; 0: only at the end
  bool test_initialization = true;
  PassSchedule passes;
  DeferredUpdate::Options deferred;   // if the model's update rule is
  SnapshotOptions snapshots;          // worker 0's
  std::vector<std::string> weights;   // .caffemodel files to start from
  std::optional<FoundSnapshot> from;  // instead: goes on from there

  // Whether worker 0 tests before `iteration`.
  bool TestIsDue(int64_t iteration) const;
};

class Trainer {
 public:
  // The net is bound to the session, which has declared its model. Sets the first values; throws
  // DataError if a file of theirs does not fit or can't be read, though no other worker sends its
  // values, and Error where worker 0 can't write its snapshots. `model` is what was declared: the
  // net's, with what the job's recipe changes.
  Trainer(WorkerNet& net, WorkerSession& session, const ModelSpec& model,
          const TrainerOptions& options);

  // Trains to the end, tells the job what came of it, waits for the job's end, and returns it.
  // Where the job goes back after a loss, so does this. Throws what the session or the engine
  // throw, and an Error naming worker, iteration and layer if the loss is no longer a number.
  wire::WorkerReport Train();

 private:
  void SetFirstValues();
  LayerTimer MakeTimer() const;
  // Whether the net has parameters that are not trained.
  bool HasParametersBesideModel() const;
  // Whether it will get what is not trained from another worker (ExchangeValuesBesideModel).
  bool GetsValuesBesideModel() const;
  void CheckSameStart() const;
  void RestoreOptimizerState();
  // To the log and to whoever watches the job.
  void Tell(const std::string& news);
  // Those of the passes since the last call; before the batch changes.
  void CountImages();
  wire::WorkerReport TrainToEnd();
  // After the last iteration.
  wire::WorkerReport Report();
  void GoBack();
  // Whoever has taken a lost one's place gets from another worker what the model lacks.
  void ExchangeValuesBesideModel();
  // The plan has changed.
  void TakePlan();
  // Who reads which data, where that has changed since the job began.
  void TakeShare();
  void RunIteration();
  // Returns the pass's loss.
  float RunPass(const PassOfIteration& pass);
  void Forward();
  void Backward(const PassOfIteration& pass);
  // Since `begin` a step was computed. With layers' times to measure, waits until it is done.
  void Measure(void (LayerTimer::*add)(int step, Duration duration), int step, Time begin);
  void WaitForAllLayers();
  // Whether somebody has asked for a snapshot and one can be written.
  bool SnapshotIsWanted();
  // One that is not `due`, but asked for, and can't be written is not; it does not end the job.
  void WriteSnapshot(bool due);
  void RefuseSnapshot(const std::string& why_not);
  // Throws if it is not a number.
  float CheckedLoss();
  // What to do if training has diverged.
  std::string Advice() const;
  // Throws Error if some are not finite.
  void CheckParameters() const;
  void Display(float loss);
  // What is neither forward nor backward, from `begin` to now.
  void TracePhase(const char* name, Time begin);
  // Worker 0's test phase, with the parameters of the current iteration, unless it has been done.
  void Test();
  std::string HashOfValues() const;

  WorkerNet& net_;
  WorkerSession& session_;
  const ModelSpec& model_;
  TrainerOptions options_;
  Snapshots snapshots_;
  int64_t first_iteration_;  // of this process
  int64_t begins_at_;        // of the training: before it no snapshot is due
  int64_t counted_passes_;   // images_ is of the passes before
  int64_t images_ = 0;
  std::optional<LayerTimer> timer_;  // until the layers' times are known
  DoneIteration snapshot_;           // written
  DoneIteration tested_;
  Time begin_{};
  std::deque<float> recent_losses_;
  TestResult last_test_;
  Duration testing_{};
  Duration loading_{};  // in the present iteration
};

}  // namespace poseidon
