// How long each layer of a net computes, as `caffe time` measures it, and the profile made of that:
// a job with the replay engine, which `poseidon run` replays and `poseidon plan` predicts with.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "worker/engine/engine.h"

namespace poseidon {

// Milliseconds of a pass through one step, median over the iterations measured.
struct StepTimes {
  std::string name;
  std::string type;
  double forward_ms = 0;
  double backward_ms = 0;
};

struct LayerMeasurement {
  std::vector<StepTimes> steps;  // in forward order
  // Whole passes, medians.
  double forward_ms = 0;
  double backward_ms = 0;
  double data_ms = 0;  // waiting for the batch, which is read ahead
  // How much the iterations varied; nothing of fewer than ten.
  std::optional<Disturbance> disturbance;
};

// Runs `warmup` iterations that do not count, then `iterations`, at least 1, with the values of the
// net's fillers. Calls `progress` after each with how many are done. Throws what the engine throws.
LayerMeasurement MeasureLayers(Engine& engine, int warmup, int iterations,
                               const std::function<void(int done)>& progress);

// The measurement as a job config named `name`, whose times are means: the medians and their part
// of what stalls took. An iteration that has several passes (a solver's iter_size) is one of all
// their samples there, as in plans of a solver, and varies less than a pass.
// cluster.flops are those at which the InnerProduct layers went forward; without any they are not
// set. Of layers with one name the second becomes "name (2)".
Job ToProfile(const std::string& name, const Engine& engine, const LayerMeasurement& measured,
              int passes = 1);

}  // namespace poseidon
