// The training loop: walks an engine's steps, hands gradients to the session as they are born,
// waits for a layer's parameters just before its next forward pass.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "client/layer_timer.h"
#include "client/session.h"
#include "proto/wire.pb.h"
#include "worker/deferred_update.h"
#include "worker/engine.h"
#include "worker/pass_schedule.h"
#include "worker/snapshots.h"

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
};

class Trainer {
 public:
  // The session has declared the engine's model. Binds the engine to the session's memory and sets
  // the first values; throws DataError if a file of theirs does not fit.
  // `model` is what was declared: the engine's, with what the job's recipe changes.
  Trainer(Engine& engine, Session& session, const ModelSpec& model, const TrainerOptions& options);

  // Trains to the end and says what came of it. Throws what the session or the engine throw, and an
  // Error naming worker, iteration and layer if the loss is no longer a number.
  wire::WorkerReport Train();

 private:
  void BindParameters();
  void SetFirstValues();
  // Whether the net has parameters that are not trained.
  bool HasParametersBesideModel() const;
  void CheckSameStart() const;
  void RestoreState();
  void RunIteration();
  void RunPass(int64_t pass, int64_t passes);
  void Forward();
  void Backward(int64_t pass, int64_t passes);
  // Where the engine puts a layer's gradient in one pass of several; what is there is then added.
  GradientTarget TargetOf(int layer, int64_t pass);
  void AddPass(int layer, int64_t pass, int64_t passes);
  // The layer has the parameters for this iteration's forward pass, updated here if that is ours.
  void WaitFresh(int layer);
  void BeginDeferred();
  void WaitForAllLayers();
  void WriteSnapshot();
  void CheckLoss(float loss) const;
  void Display(float loss);
  // Worker 0's test phase, with the parameters of the current iteration.
  void Test();
  std::string ParameterHash() const;
  void Trace(const char* name, int step, Time begin);

  Engine& engine_;
  Session& session_;
  const ModelSpec& model_;
  TrainerOptions options_;
  Snapshots snapshots_;
  int64_t first_iteration_;
  std::optional<LayerTimer> timer_;  // until the layers' times are known
  // Where updates are deferred: by layer, the iteration whose forward pass its values are for.
  std::optional<DeferredUpdate> deferred_;
  std::vector<int64_t> updated_;
  int64_t deferred_begun_ = -1;       // the iteration for which BeginDeferred was called last
  std::vector<float> pass_gradient_;  // with several passes: a layer's of one
  std::deque<float> recent_losses_;
  TestResult last_test_;
  Duration testing_{};
};

}  // namespace poseidon
