// Which layers' work can be captured in a CUDA graph, and which may stand beside such layers.
#pragma once

#include "caffe_adapter/net/net.h"

namespace poseidon {

// Whether the layer puts the same work in the device's stream in each pass and does nothing else.
bool IsAlikeEachPass(const LayerDescription& layer);
// Of the others: whether a pass of it may be done once more beside the passes that count, with
// numbers that mean nothing: it keeps nothing for the next pass, and minds no numbers but labels
// and indices, which are checked (worker/torch/layers/torch_labels.h).
bool MayBeDoneTwice(const LayerDescription& layer);

}  // namespace poseidon
