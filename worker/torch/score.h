// Scoring a trained net without a cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "caffe_adapter/net/solver.h"
#include "worker/engine/engine.h"

namespace poseidon {

// The net's TEST phase with the values of the .caffemodel files `weights`, averaged over `batches`
// batches, at least 1. Layers that no file has keep their fillers' values. `tell` gets, before
// anything is computed, a sentence for each file on what was taken from it, and one on such layers.
// There is no `loss` where it is one of the outputs, of a net with one loss of weight 1.
// `progress`, if it is not null, is called after each batch, with how many of all are done. Throws
// ConfigError, DataError.
TestResult ScoreNet(const SolverNet& net, const std::vector<std::string>& weights, int64_t batches,
                    int threads, const std::function<void(const std::string& news)>& tell,
                    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace poseidon
