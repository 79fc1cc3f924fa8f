// ComputeWalk: how far a simulated worker's computing is in an iteration, which is a list of moves
// (simulation/compute_moves.h), and what that took.
//
//   walk.Begin(iteration, now);
//   until Finish says that the iteration is done:
//     walk.awaited()          the layers whose parameters the next move needs, if any
//     walk.Wait()             they are not there
//     walk.Start(now)         they are: the move's computing takes so long
//     walk.Finish(now)
//
// A value that is part of an actor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "client/pace/layer_timer.h"
#include "core/time.h"
#include "core/trace.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/compute_moves.h"
#include "simulation/compute_timeline.h"

namespace poseidon {

struct IterationTimes {
  Time begin{};        // the first move may still have to wait
  Time end{};          // of the last move
  Duration exposed{};  // of these, those that computing stood still for parameters
  Duration planned{};  // of the others, what they would have been if machines did not vary
  int64_t iteration = 0;
};

class ComputeWalk {
 public:
  // All that is pointed to outlives this.
  struct Options {
    const ComputeTimeline* timeline = nullptr;
    const ModelSpec* model = nullptr;
    const Communication* communication = nullptr;       // for its local_steps
    double compute_factor = 1;                          // computing takes so many times as long
    ComputeDisturbance disturbance;                     // of these times
    bool measure = false;                               // how long layers compute
    Trace* trace = nullptr;                             // may be null
    std::vector<IterationTimes>* iterations = nullptr;  // gets one for each Begin
  };
  explicit ComputeWalk(const Options& options);

  // What is done with a move.
  struct Done {
    std::vector<int> gradients;  // of these layers
    bool iteration = false;
  };

  // The worker has so many times the model's batch from now on, and computes as much longer.
  void SetPart(double part) { part_ = part; }
  void Begin(int rank, int64_t iteration, Time now);
  // What is computed counts for nothing.
  void Abandon();
  // From Begin until the iteration is done.
  bool computing() const { return computing_; }
  // Between Wait and Start.
  bool waiting() const { return waiting_; }
  const std::vector<ComputeMove::Awaited>& awaited() const { return move().awaited; }
  void Wait() { waiting_ = true; }
  Duration Start(Time now);
  Done Finish(Time now);

  // The times of the iteration begun last.
  const IterationTimes& times() const { return options_.iterations->back(); }
  // An iteration is done. Gives the layers' mean times once, when enough iterations are measured.
  std::optional<wire::LayerTimes> Measured();

 private:
  const ComputeMove& move() const { return moves_[move_]; }
  void AddTrace(const char* name, Time begin, Time end);
  void AddTime(Duration time);

  Options options_;
  ComputeDisturbance disturbance_;  // of the present iteration
  std::vector<ComputeMove> moves_;
  std::optional<LayerTimer> timer_;  // until the layers' times are known
  double part_ = 1;
  int64_t iteration_ = 0;
  size_t move_ = 0;
  bool computing_ = false;
  bool waiting_ = false;
  Time since_{};  // when the move began to wait or to compute
};

}  // namespace poseidon
