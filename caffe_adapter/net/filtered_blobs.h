// Which blobs of a net have a number of samples that varies from batch to batch, because a Filter
// layer lets only some pass. Their first extent in a description is the most that can pass.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/net.h"

namespace poseidon {

// By name of the blob: the Filter layer that its samples have come through.
using FilteredBlobs = std::map<std::string, std::string>;

// Adds the tops of the layer that comes next in forward order, if they are such blobs. Throws
// ConfigError for a layer that reads one and has to know from the start how many samples there are,
// and for one whose bottoms would not have as many samples each.
void AddFilteredTops(const LayerInput& input, const std::vector<Shape>& tops, FilteredBlobs& blobs);

// Those of a net.
FilteredBlobs FindFilteredBlobs(const NetDescription& net);

}  // namespace poseidon
