// How long a model's layers compute, where nobody has measured them. Functions without state. They
// throw ConfigError where a layer would take longer than an hour, as nobody's does.
#pragma once

#include "proto/model.pb.h"

namespace poseidon {

// The model with a forward and a backward time of every layer: its own, or what its multiply-adds
// take at `flops` operations a second (planner/cost/cluster_model.h).
ModelSpec WithTimes(ModelSpec model, double flops);

// The same, in such proportion that an iteration of the model's batch takes one device as long as
// `images_per_second` says, which is above 0.
ModelSpec WithImagesPerSecond(ModelSpec model, double images_per_second);

// Floating-point operations of a training step, forward and backward, for one sample. The model has
// no times.
double OperationsPerSample(const ModelSpec& model);

// The model of a worker that computes so many batches in an iteration, if `model` is that of one:
// its devices side by side, each one of its own (the model has times, which stay), or itself one
// after the other (a solver's iter_size; the model has no times, and its layers take longer).
ModelSpec WithBatches(ModelSpec model, int batches);

}  // namespace poseidon
