// Models that verbs plan, simulate and experiment with, from the files that describe them.
// Functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "caffe_adapter/net/shape.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Exactly one of net, solver, profile and replay.
struct ModelSource {
  std::string net;               // a net prototxt; its training phase is taken
  std::string solver;            // or a solver prototxt, whose net is taken
  std::string profile;           // or a profile, which also says the batch
  std::optional<Replay> replay;  // or what a profile has in it
  std::optional<int64_t> batch;  // samples a worker processes per iteration; by default the net's
  std::optional<Shape> record_shape;  // channels, height, width of the data's records
  // Samples a second that a worker computes alone; by default what the profile says, else nothing.
  std::optional<double> images_per_second;
};

// Throws ConfigError for files that say nothing sensible, DataError where the shape of the data is
// needed, but neither given nor to be found in the net's databases.
ModelSpec LoadModel(const ModelSource& source);

// "3x32x32". Throws ConfigError that calls the text `what`.
Shape ParseShape(const std::string& what, const std::string& text);

}  // namespace poseidon
