// Training with local steps (communication.local_steps; DiLoCo, arXiv 2311.08105, streamed by
// fragments as in arXiv 2501.18512): which layers are exchanged after which step. Pure functions of
// a checked job.
#pragma once

#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// By layer its fragment, from 0. Layers go to fragments by their floats, largest first to the one
// with fewest so far, so that no exchange is much larger than another; of equals the first. So
// equal layers are dealt out in turn, which the paper found to train better than parts of the net.
std::vector<int> FragmentOfLayer(const ModelSpec& model, int fragments);

// After which step of an iteration, from 1 to local_steps, the fragment is sent: evenly spread, the
// last one at the end.
int StepOfFragment(const Communication& communication, int fragment);

}  // namespace poseidon
