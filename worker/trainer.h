// The training loop: walks an engine's steps, hands gradients to the session as they are born,
// waits for a layer's parameters just before its next forward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/layer_timer.h"
#include "client/session.h"
#include "proto/wire.pb.h"
#include "worker/engine.h"

namespace poseidon {

// Names and meanings are Caffe's SolverParameter's.
struct TrainerOptions {
  int64_t max_iter = 1;
  int64_t display = 0;        // worker 0 logs the loss every so many iterations; 0: never
  int64_t test_interval = 0;  // worker 0 tests every so many iterations; 0: only at the end
  bool test_initialization = true;
};

class Trainer {
 public:
  // The session has declared the engine's model. Binds the engine to the session's memory.
  Trainer(Engine& engine, Session& session, const TrainerOptions& options);

  // Trains to the end and says what came of it. Throws what the session or the engine throw, and an
  // Error naming worker and iteration if the loss is no longer a number.
  wire::WorkerReport Train();

 private:
  void BindParameters();
  void RunIteration();
  void Forward();
  void Backward();
  // Worker 0's test phase, with the parameters of the current iteration.
  void Test();
  void WaitForAllLayers();
  std::string ParameterHash() const;
  void Trace(const char* name, int step, Time begin);

  Engine& engine_;
  Session& session_;
  TrainerOptions options_;
  std::optional<LayerTimer> timer_;  // until the layers' times are known
  TestResult last_test_;
  Duration testing_{};
};

}  // namespace poseidon
