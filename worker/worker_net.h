// WorkerNet: the net of a worker as the training loop drives it, step by step: its engine, or
// replicas of it on several devices, and the way that gradients and values take between there and
// the session.
//
//   HostNet     one engine, which computes on the training thread in the session's own memory
//   DeviceNet   an engine on each of the worker's devices, which have memory of their own
//
// Each of several replicas has an equal part of the worker's batch. The worker's loss and its
// gradient are the sums of theirs, so each one's loss is its part of the mean over the batch.
//
// Not thread-safe; the training thread's. Whatever waits throws what the session throws; everything
// may throw what an engine has thrown.
#pragma once

#include <cstdint>
#include <string>

#include "caffe_adapter/files/caffemodel.h"
#include "worker/engine/engine.h"
#include "worker/engine/kept_statistics.h"

namespace poseidon {

// One of the forward and backward passes that make an iteration's gradient.
struct PassOfIteration {
  int64_t index = 0;  // from 0
  int64_t count = 1;

  bool last() const { return index + 1 == count; }
};

class WorkerNet {
 public:
  virtual ~WorkerNet() = default;

  // The first replica's. What it says of the net holds for all; its values and what it finds in
  // them hold when nothing computes: before training, or after Synchronize.
  virtual Engine& engine() = 0;
  const Engine& engine() const { return const_cast<WorkerNet*>(this)->engine(); }
  // Samples of a pass on all replicas.
  virtual int64_t batch() const = 0;

  // On all replicas; those of the session's memory before WorkerSession::Begin.
  virtual void SetValues(const NetValues& values) = 0;
  // Before WorkerSession::Begin. Brings the first replica's parameters to the session's memory,
  // from where all get them.
  virtual void PublishValues() = 0;

  // The number of workers has changed: the next batches are this share's.
  virtual void SetShare(const DataShare& share) = 0;
  // From now on the caller waits for each step (Synchronize), to measure it, or no longer does. A
  // net that launches several steps at once launches each alone meanwhile.
  virtual void MeasureSteps(bool measures) = 0;
  // Number `pass` of the training.
  virtual void LoadBatch(int64_t pass) = 0;
  // A layer's parameters are needed for the current iteration. Waits until they have come; updated
  // here where that is the worker's own to do (client/deferred/deferred_update.h).
  virtual void WaitFresh(int layer) = 0;
  virtual void Forward(int step) = 0;
  // Adds to the gradient of the iteration, which is the mean of its passes'.
  virtual void Backward(int step, const PassOfIteration& pass) = 0;
  // After the last pass's Backward of the layer's step: its gradient goes on its way.
  virtual void GradientReady(int layer) = 0;
  // Whether the calls above may return before what they ask for is done.
  virtual bool runs_ahead() const = 0;
  // Returns when all gradients of the iteration have been handed to the session, whose iteration
  // may then end.
  virtual void EndIteration() = 0;
  // Returns when the session's memory has what devices have changed: parameters, optimizer state
  // and what a codec has not sent. Needed before any of it is read there, and before the job goes
  // over to another plan. Not before all layers are fresh.
  virtual void SyncToHost() = 0;
  // The session has gone over to another plan, and its buffers are others.
  virtual void PlanChanged() = 0;
  // The job goes back (Rewound): what has been asked for is no longer wanted. Returns when none of
  // it is under way, so that the session may change its memory. PlanChanged is next.
  virtual void Abandon() = 0;
  // The first replica's; in a job that does not go back there are none.
  virtual KeptStatistics& statistics() = 0;

  // The loss of the forward pass before. Waits for that pass; a net that runs ahead is asked when
  // the backward pass has been asked for, and goes on with that meanwhile.
  virtual float Loss() = 0;
  // What is wrong where that is no number (worker/engine/engine.h), at the first replica that finds
  // it.
  virtual std::string FirstNotFinite() = 0;
  // Returns when all that was asked for is done. The session hears of no gradient meanwhile.
  virtual void Synchronize() = 0;
  // The first replica's.
  virtual TestResult Test() = 0;
};

}  // namespace poseidon
