// Caffe's .solverstate files: what a solver needs beside its net's values to go on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/shape.h"
#include "core/atomic_file.h"
#include "proto/caffe.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// A blob's optimizer state.
struct HistoryBlob {
  Shape shape;
  std::vector<float> values;
};

struct SolverState {
  int64_t iteration = 0;    // updates made so far
  std::string learned_net;  // path of the .caffemodel with the values
  int current_step = 0;     // of lr_policy "multistep"; written for Caffe, not needed here
  // In Caffe's order: for each learnable blob of the net in its order, lr_mult 0 or not, its state;
  // then, for AdaDelta and Adam, likewise their second one.
  std::vector<HistoryBlob> history;
};

// The file is there whole or not at all. In Caffe's HDF5 format if the path ends in ".h5" (needs a
// build with HDF5), else in BINARYPROTO. Throws Error.
void WriteSolverState(const std::string& path, const SolverState& state);
// The same under a temporary name, to be placed.
PreparedFile PrepareSolverState(const std::string& path, const SolverState& state);
// Throws DataError for a file that is not there, or is none, or is truncated.
SolverState ReadSolverState(const std::string& path);

// Throws ConfigError if a snapshot's files, the values' or the state's, can't be BINARYPROTO: with
// what is not trained, which is in both, they are longer than such a file can be. `model` is the
// net's (ToModelSpec).
void CheckFitsBinaryFiles(const NetDescription& net, const ModelSpec& model);

// Between Caffe's blobs and ours: `state` has, in the order of the model's parameters,
// OptimizerStatePerParameter floats of the model's update rule for each. `model` is the net's
// (ToModelSpec).
std::vector<HistoryBlob> ToHistory(const NetDescription& net, const ModelSpec& model,
                                   std::span<const float> state);
// The mean gradients of a deferred rule are 0. Throws DataError, which begins with `path`, if the
// history is not of this net or of another type of solver.
std::vector<float> FromHistory(const std::string& path, const NetDescription& net,
                               const ModelSpec& model, const std::vector<HistoryBlob>& history);

}  // namespace poseidon
