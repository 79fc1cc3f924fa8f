// StagedGradients: the gradients of a solver whose blobs are in a device's memory, on their way to
// the session and back, for DistributedSolver. They leave as soon as the device has them and come
// back as the mean over all workers, while the device computes (client/staging/device_staging.h).
//
// Factors are copied within the device first, below those of the passes before: the solver writes
// its own again in the next pass, and has them anywhere.
//
// Thread safety and errors are the session's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "client/staging/device_staging.h"
#include "client/worker_session.h"
#include "proto/model.pb.h"

namespace poseidon {

// A solver's blobs in the memory of a device, by layer of the model. Its work is in one stream.
class SolverOnDevice {
 public:
  // The factors of one pass, row-major.
  struct Factors {
    std::span<const float> u;
    std::span<const float> v;
  };

  virtual ~SolverOnDevice() = default;

  // A session with a solver on a device pins its buffers for it (WorkerSessionOptions::device).
  virtual Device& device() = 0;
  virtual DeviceStream stream() const = 0;
  // For a session whose devices update with factors (WorkerSessionOptions::devices_update):
  // here they rebuild the mean gradient. Null: of no such session.
  virtual FactorUpdate* factor_update() { return nullptr; }
  // A layer's gradients, blob by blob: read there, and replaced by their mean, until the solver's
  // update. Always the same memory.
  virtual std::vector<std::span<float>> GradientOnDevice(int layer) = 0;
  // An inner-product layer's gradient at the top and data at the bottom, of the pass just done;
  // written again no earlier than the stream comes to the next pass.
  virtual Factors FactorsOnDevice(int layer) = 0;
};

class StagedGradients {
 public:
  // The session has declared `model`, of rule MeanGradient, and begun. All that is pointed to
  // outlives this.
  StagedGradients(SolverOnDevice& solver, WorkerSession& session, const ModelSpec& model,
                  int passes);

  // Before the first gradient of a layer, whose blobs' gradients become 0.
  void Prepare(int layer) { WaitFresh(layer); }
  // Backward pass number `pass` of the layer is in the solver's stream.
  void AfterBackward(int layer, int pass);
  // All gradients of the iteration have left the device.
  void EndIteration() { staging_->EndIteration(); }
  // Before the job goes over to another plan, and when it has.
  void SyncToHost() { staging_->SyncToHost(); }
  void PlanChanged() { staging_->PlanChanged(); }
  // What is put in the solver's stream after this finds the mean gradient.
  void WaitFresh(int layer);

 private:
  // An inner product's factors on the device, with the rows of all passes.
  struct Rows {
    std::span<float> u;
    std::span<float> v;
  };

  std::span<float> Allocate(int64_t floats);
  void CopyFactors(int layer, int pass);

  SolverOnDevice& solver_;
  WorkerSession& session_;
  int passes_;
  std::vector<DeviceMemory> memory_;  // of rows_
  std::vector<Rows> rows_;            // by layer
  std::unique_ptr<DeviceStaging> staging_;
};

}  // namespace poseidon
