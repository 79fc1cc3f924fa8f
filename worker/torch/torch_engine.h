// TorchEngine: a solver's net, computed by libtorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "caffe_adapter/net/solver.h"
#include "worker/engine/data_feed.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_device.h"
#include "worker/engine/precision.h"

namespace poseidon {

struct TorchEngineOptions {
  Solver solver;
  // Decide which records this worker reads (caffe_adapter/data/data_order.h) and what dropout
  // drops.
  int rank = 0;
  int workers = 1;
  // Makes the test nets although the rank is not 0, as worker 0 may be lost.
  bool may_test = false;
  bool shuffle = true;  // of the training data; test data is read in the order of its database
  uint64_t seed = 1;    // of parameters, shuffling, cropping, mirroring, dropout
  std::optional<int64_t> batch_per_worker;    // instead of the train net's batch size
  int replicas = 1;                           // that a worker's batch is shared by, this among them
  int64_t passes = 1;                         // of an iteration, at most
  int threads = 1;                            // of the arithmetic, at least 1
  float label_smoothing = 0;                  // of SoftmaxWithLoss in the train net
  DataFeed feed = nullptr;                    // for Input and MemoryData layers of either net
  EngineDevice* device = nullptr;             // computes there; null: on the CPU
  Precision precision = Precision::kFloat32;  // of the train net; test nets are float32
  bool tf32 = false;                          // a CUDA device's float32 products may be TF32
  LossScaling loss_scaling;                   // if the precision is float16
  // A CUDA device is asked for many steps at once, whose intermediate values have memory of their
  // own then (Engine::SetPauses); else step by step.
  bool cuda_graphs = true;
  // A CUDA device's convolutions give the same bits in each run, at the price of speed. CPUs do in
  // any case.
  bool deterministic = false;
};

// Throws ConfigError with what to do if libtorch can't compute on this CUDA device; none: the CPU.
void CheckTorchDevice(std::optional<int> cuda_device);

// The engine of the solver's train net and, on a worker that may test, of its test nets. Reads the
// next batch in a thread of its own while the present one is computed.
//
// Layers without learned parameters in the model (lr_mult 0, or in the test net only) get theirs
// from their fillers, the same on each worker.
//
// With a device, all spans that the engine is given are that device's memory, and batches are
// copied to it while the pass before is computed backward. loss() is what finds out about a label
// that is no class; best call it after the backward pass, as it waits for the forward pass.
//
// If it is a CUDA device, the engine computes in CUDA's legacy default stream: LoadBatch, Forward
// and Backward only put work there, and a gradient is there when that work is done. What returns
// numbers, takes them or fills memory waits for it: loss() for the forward pass, FirstNotFinite,
// Test, Values, SetValues, FillParameters and Synchronize for all. FirstNotFinite after the
// backward pass computes the net forward again. Float32 is float32 there; with tf32 its products,
// test nets' too, are of numbers with 10 bits behind the point, which matrix units multiply. Random
// layers draw other numbers than on the CPU.
//
// Float16 is with loss scaling (worker/torch/torch_loss_scaler.h). Half types are for GPUs: the CPU
// only imitates them (worker/torch/torch_precision.h).
//
// For the whole process, sets the number of threads of libtorch and OpenBLAS and lets malloc keep
// freed memory; call it on the thread that will use the engine. Throws ConfigError for a net that
// can't be described or computed and for a device that can't be used, DataError for a database that
// can't be read.
std::unique_ptr<Engine> MakeTorchEngine(const TorchEngineOptions& options);

}  // namespace poseidon
