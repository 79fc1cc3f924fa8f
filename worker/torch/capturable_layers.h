// This says which layers' work can be captured in a CUDA graph (worker/torch/pass_graphs.h), and
// which may stand between such layers. A net with any other layer is launched step by step.
//
// Thread safety: any thread.
#pragma once

#include "caffe_adapter/net/net.h"

namespace poseidon {

// Whether the layer puts the same work in the device's stream in each pass and does nothing else.
bool IsAlikeEachPass(const LayerDescription& layer);
// Of the others: whether a pass of it may be done once more beside the passes that count, with
// numbers that mean nothing: it keeps nothing for the next pass, and reads no memory by numbers
// that it is given but by labels, which are checked before (worker/torch/layers/torch_labels.h).
// Stochastic pooling does, by the place that it draws.
bool MayBeDoneTwice(const LayerDescription& layer);

}  // namespace poseidon
