// What a simulated worker does in an iteration, in order: stretches of computing, each with what it
// waits for and what it leaves to be sent.
//
// Usually a stretch is one step of the timeline's forward pass, which awaits the step's layer, or
// of its backward pass, whose end is that layer's gradient. With local steps
// (communication.local_steps) it is all the steps up to the next one after which a fragment is sent
// or awaited.
#pragma once

#include <vector>

#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/compute_timeline.h"

namespace poseidon {

struct ComputeMove {
  enum class Pass { kForward, kBackward, kLocalSteps };
  // A layer's parameters of this iteration; or those of the next one, which a gradient that has
  // been sent in this iteration makes.
  struct Awaited {
    int layer = 0;
    bool next_iteration = false;
  };

  Pass pass = Pass::kForward;
  int step = 0;  // of the timeline; 0 for local steps
  Duration time = {};
  std::vector<Awaited> awaited = {};  // before it begins
  std::vector<int> gradients = {};    // layers, when it ends
};

// `job` is checked (proto/job_config.h).
std::vector<ComputeMove> MovesOf(const ComputeTimeline& timeline, const ModelSpec& model,
                                 const Communication& communication);

// Of all steps of the timeline, once forward and backward.
Duration ComputeTime(const ComputeTimeline& timeline);

}  // namespace poseidon
