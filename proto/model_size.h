// How many floats the parts of a model have.
#pragma once

#include <cstdint>

#include "proto/model.pb.h"

namespace poseidon {

constexpr int64_t kFloatBytes = sizeof(float);

// The product of the blob's extents; 1 for a blob without axes, as in Caffe.
int64_t FloatCount(const BlobSpec& blob);

// The floats of all the layer's blobs.
int64_t FloatCount(const LayerSpec& layer);

}  // namespace poseidon
