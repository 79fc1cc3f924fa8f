// What a program gives to the layers that read no file: Input and MemoryData.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "caffe_adapter/net/net.h"

namespace poseidon {

// Writes the tops of a layer (their floats, in the layer's order) for an iteration. Called by the
// thread that loads batches, before the iteration's forward pass.
using DataFeed = std::function<void(const LayerDescription& layer, int64_t iteration,
                                    std::span<const std::span<float>> tops)>;

}  // namespace poseidon
