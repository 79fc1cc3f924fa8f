// TorchEngine: a solver's net, computed by libtorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "caffe_adapter/solver.h"
#include "worker/data_feed.h"
#include "worker/engine.h"

namespace poseidon {

struct TorchEngineOptions {
  Solver solver;
  // Decide which records this worker reads (caffe_adapter/data_order.h) and what dropout drops.
  int rank = 0;
  int workers = 1;
  bool shuffle = true;  // of the training data; test data is read in the order of its database
  uint64_t seed = 1;    // of parameters, shuffling, cropping, mirroring, dropout
  std::optional<int64_t> batch_per_worker;  // instead of the train net's batch size
  int threads = 1;                          // of the arithmetic, at least 1
  float label_smoothing = 0;                // of SoftmaxWithLoss in the train net
  DataFeed feed = nullptr;                  // for Input and MemoryData layers of either net
};

// The engine of the solver's train net and, on worker 0, of its test nets. Reads the next batch in
// a thread of its own while the present one is computed.
//
// Layers without learned parameters in the model (lr_mult 0, or in the test net only) get theirs
// from their fillers, the same on each worker.
//
// For the whole process, sets the number of threads of libtorch and OpenBLAS and lets malloc keep
// freed memory; call it on the thread that will use the engine. Throws ConfigError for a net that
// can't be described or computed, DataError for a database that can't be read.
std::unique_ptr<Engine> MakeTorchEngine(TorchEngineOptions options);

}  // namespace poseidon
