// Models that verbs plan, simulate and experiment with, from the files that describe them.
// Functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "cli/input/sample_input.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Exactly one of net, solver, profile and replay.
struct ModelSource {
  std::string net;               // a net prototxt; its training phase is taken
  std::string solver;            // or a solver prototxt, whose net is taken
  std::string profile;           // or a profile, which also says the batch
  std::optional<Replay> replay;  // or what a profile has in it
  // Samples of a batch, by default the net's. A worker processes the solver's iter_size of them per
  // iteration, of a net one.
  std::optional<int64_t> batch;
  // Channels, height, width of the data's records, which a layer of the net reads.
  std::optional<Shape> record_shape;
  // Samples a second that a worker computes alone; by default what the profile says, else nothing.
  std::optional<double> images_per_second;
};

// A model, and what told the shapes of the samples that it reads: nothing for a profile or replay,
// whose layers say themselves how large they are.
struct LoadedModel {
  ModelSpec model;
  std::vector<SampleInput> inputs;
  // What a device does that trains images_per_second, or what a profile says, in proportion to
  // these; nothing if the source says neither, or has the layers' times without, which say nothing
  // of operations.
  std::optional<double> flops = {};
  std::optional<Disturbance> disturbance = {};  // of the machine that a profile was measured on
};

// Needs no data, only the shape of their samples: as given, or as a first record, or else the net
// tells (caffe_adapter/data/sample_shapes.h). Throws ConfigError for files that say nothing
// sensible and a record_shape that no layer asks for, DataError that says how to give the shape
// where nothing tells it.
LoadedModel LoadModel(const ModelSource& source);

// "3x32x32". Throws ConfigError that calls the text `what`.
Shape ParseShape(const std::string& what, const std::string& text);

}  // namespace poseidon
