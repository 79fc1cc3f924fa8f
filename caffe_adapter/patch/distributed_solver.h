// DistributedSolver: makes a solver that knows nothing of other workers train together with them.
//
// The solver computes gradients and updates as it does alone; what changes is that its update gets
// the mean gradient of all workers. Any solver will do, Caffe's or a user's own, as long as the
// program tells when what is done; the calls are those of Caffe 1.0's callbacks (solver.hpp,
// net.hpp):
//
//   DistributedSolver distributed(solver, session);
//   for each iteration:
//     distributed.OnStart();
//     for each pass (iter_size):
//       for each layer l, ascending:   distributed.BeforeForward(l);  forward
//       for each layer l, descending:  backward;  distributed.AfterBackward(l);
//     distributed.OnGradientsReady(loss);
//     the solver's own update
//   distributed.Finish();
//
// The solver's gradients are the session's own memory where the solver can have them there, and are
// copied only where an all-reduce needs them twice.
//
// A layer is one of those of the model, by its index there. A layer's gradient is sent as soon as
// its last backward pass is done, as factors where the plan says so, and travels while the layers
// below compute; only OnGradientsReady waits.
//
// Where the solver's blobs are in the memory of a device, gradients come from there and go there
// without synchronous copies: OnGradientsReady waits until the last one has left the device, and
// for what is on the wire.
//
// Not thread-safe; the training thread owns it. Every call throws what the session throws
// (client/worker_session.h); and Error, with no other effect, where it is out of order, as it would
// show as another worker's deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "caffe_adapter/patch/staged_gradients.h"
#include "client/worker_session.h"
#include "core/error.h"
#include "proto/model.pb.h"

namespace poseidon {

// Of a worker that ends and has begun no iteration: it has not even told the job what it trains.
ConfigError NothingBegun();

// What a DistributedSolver needs of a solver. Spans are host memory of the model's layer `layer`:
// its blobs one after the other.
class PatchedSolver {
 public:
  virtual ~PatchedSolver() = default;

  // The layers that learn, in forward order, without the blobs that do not (lr_mult 0). A blob that
  // several layers share is the lowest one's, whose backward pass is the last to add to its
  // gradient. The update rule does not matter. `iterations` is what is left to do;
  // inner_product.rows counts the rows of all passes.
  virtual const ModelSpec& model() const = 0;
  // Forward and backward passes that add up to one gradient.
  virtual int passes() const = 0;

  // `memory` is the layer's from now on, until the next call for it or until the session is gone;
  // the last call's may be gone already. Nobody else uses it from OnGradientsReady to AfterBackward
  // of the layer's last pass. A solver on the host may keep its gradient there; there is 0 in it,
  // later the mean. Get- and SetGradient have nothing to copy then where they are given it.
  virtual void PlaceGradient(int /*layer*/, std::span<float> /*memory*/) {}
  // False: until the iteration's end nobody asks for the layer's gradient, only for its factors.
  virtual void NeedGradient(int /*layer*/, bool /*needed*/) {}

  virtual void GetValues(int layer, std::span<float> values) = 0;
  virtual void SetValues(int layer, std::span<const float> values) = 0;
  // The sum over the passes.
  virtual void GetGradient(int layer, std::span<float> gradient) = 0;
  virtual void SetGradient(int layer, std::span<const float> gradient) = 0;
  // An inner-product layer's gradient at the top and data at the bottom, of the pass just done.
  virtual void GetFactors(int layer, std::span<float> u, std::span<float> v) = 0;

  // Where gradients are in a device's memory, for as long as this lives: instead of the three calls
  // above. Null: they are the host's.
  virtual SolverOnDevice* on_device() { return nullptr; }
};

class DistributedSolver {
 public:
  // Both must outlive this. The session has joined and not declared a model.
  DistributedSolver(PatchedSolver& solver, WorkerSession& session);

  // Before an iteration's first forward pass; again while none of its gradients is complete, where
  // the solver begins it anew. In the first iteration worker 0's parameters, as they
  // are now, set out for the other workers.
  void OnStart();
  // In the first iteration waits for worker 0's parameters of the layer and sets them.
  void BeforeForward(int layer);
  void AfterBackward(int layer);
  // Sets the gradients to their mean over all workers. `loss`: the iteration's, of this worker;
  // asked when all gradients have left, as that may wait for a device.
  void OnGradientsReady(const std::function<float()>& loss);
  void OnGradientsReady(float loss) {
    OnGradientsReady([loss] { return loss; });
  }

  // The solver has tested; may be called from the first OnStart until Finish. `test` lacks only the
  // number of iterations.
  void ReportTest(wire::Progress test);

  // Tells the other nodes that this worker has done its part; waits for the job's end. Throws Error
  // if iterations are left, as the others can't go on without this one, or if none has begun.
  void Finish();

  bool began() const { return began_; }
  // Iterations done under this.
  int64_t iterations() const { return iterations_; }

 private:
  void Begin();
  void PlaceGradient(int layer);
  void ChangePlan();
  // The program makes a call for the layer at the wrong time.
  [[noreturn]] void Misuse(const std::string& call, int layer, const std::string& when) const;
  // Of the solver's values: the same on all workers.
  std::string HashOfValues();

  PatchedSolver& solver_;
  WorkerSession& session_;
  ModelSpec model_;
  std::unique_ptr<StagedGradients> staged_;  // null: on the host
  bool began_ = false;
  int64_t iterations_ = 0;
  wire::Progress last_test_;
  std::vector<int> passes_done_;  // of this iteration's backward, by layer
  std::vector<bool> has_values_;  // worker 0's, by layer
  Time begin_{};
};

}  // namespace poseidon
