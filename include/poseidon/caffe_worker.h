// CaffeWorker: makes a solver that knows nothing of other workers train together with them, by the
// calls of Caffe 1.0's callbacks (solver.hpp, net.hpp). No Caffe is needed, and any solver will do:
// it computes gradients and updates as it does alone, only that its update gets the mean gradient
// of all workers. So P workers do what one does with a batch P times as large.
//
// Two or more of this program, started by `poseidon run --config=job.prototxt -- ./line`, fit a
// line through the origin:
//
//   #include <poseidon/caffe_worker.h>
//
//   struct Line : poseidon::CaffeWorker::Solver {
//     float slope = 0, gradient = 0;
//     poseidon::Model model() const override {
//       return {.layers = {{.name = "line", .blobs = {{.shape = {1}}}}}, .iterations = 200};
//     }
//     void GetValues(int, std::span<float> to) override { to[0] = slope; }
//     void SetValues(int, std::span<const float> from) override { slope = from[0]; }
//     void GetGradient(int, std::span<float> to) override { to[0] = gradient; }
//     void SetGradient(int, std::span<const float> from) override { gradient = from[0]; }
//   };
//
//   int main() {
//     Line line;
//     poseidon::CaffeWorker worker(poseidon::SessionOptions::FromEnvironment(), line);
//     for (int i = 0; i < 200; ++i) {
//       worker.OnStart();
//       worker.BeforeForward(0);
//       const float error = line.slope * 3 - 6;
//       line.gradient = error * 3;
//       worker.AfterBackward(0);
//       worker.OnGradientsReady(error * error);
//       line.slope -= 0.01F * line.gradient;
//     }
//     worker.Finish();
//   }
//
// Several passes of forward and backward may add up to one gradient (Caffe's iter_size). A layer's
// gradient is sent as soon as its last backward pass is done, and travels while the layers below
// compute; only OnGradientsReady waits. Solvers of a stock Caffe need no such program:
// docs/caffe.md.
//
// Errors, thread safety and what a forked child can do are Session's (poseidon/session.h), only
// that calls out of order end a CaffeWorker as any error does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "poseidon/model.h"
#include "poseidon/session.h"

namespace poseidon {

class CaffeWorker {
 public:
  // What the worker needs of a solver. Spans are host memory of the model's layer `layer`: its
  // blobs one after the other.
  class Solver {
   public:
    virtual ~Solver() = default;

    // The layers that learn, without blobs that do not. The optimizer is the solver's own affair
    // and not looked at; `batch` and `inner_product` count the samples of all passes of an
    // iteration, and each pass has as many of an inner product's rows. `iterations` is what is left
    // to do.
    virtual Model model() const = 0;
    // Forward and backward passes that add up to one gradient.
    virtual int passes() const { return 1; }

    virtual void GetValues(int layer, std::span<float> values) = 0;
    virtual void SetValues(int layer, std::span<const float> values) = 0;
    // The sum over the passes.
    virtual void GetGradient(int layer, std::span<float> gradient) = 0;
    virtual void SetGradient(int layer, std::span<const float> gradient) = 0;
    // Instead of GetGradient where the plan sends an inner product's factors: the gradient at its
    // top and the data at its bottom, of the pass just done. Only layers with inner_product are
    // asked; the default throws ConfigError.
    virtual void GetFactors(int layer, std::span<float> u, std::span<float> v);
  };

  // Joins; waits until all nodes are there. `solver` outlives this.
  CaffeWorker(const SessionOptions& options, Solver& solver);
  // Tells the other nodes that this one gives up unless Finish has returned.
  ~CaffeWorker();
  CaffeWorker(const CaffeWorker&) = delete;
  CaffeWorker& operator=(const CaffeWorker&) = delete;

  int rank() const;     // from 0
  int workers() const;  // of the job

  // Before an iteration's first forward pass. In the first iteration worker 0's values, as they are
  // now, set out for the other workers.
  void OnStart();
  // In the first iteration waits for worker 0's values of the layer and sets them.
  void BeforeForward(int layer);
  void AfterBackward(int layer);
  // Sets the gradients to their mean over all workers. `loss`: the iteration's, of this worker.
  void OnGradientsReady(float loss);

  // After the last iteration: waits for the job's end. Throws Error if iterations are left, as the
  // others can't go on without this worker, or if none has begun.
  void Finish();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace poseidon
