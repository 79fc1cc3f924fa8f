// Nets of Caffe's older formats: V0 and V1 nets (`layers`), `input` fields, and what was written at
// other places in them.
#pragma once

#include "caffe_adapter/net/net.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Brings a net, from a prototxt or a .caffemodel, to the present format as Caffe does on reading
// one; a net of the present format stays as it is. In detail:
//
// - V0 layers (a V1 layer around a V0LayerParameter) become V1 layers, padding layers the `pad` of
//   the convolution or pooling after them; what a V0 layer says that its type has no use for is
//   passed over with a warning;
// - in V1 Data, ImageData and WindowData layers scale, mean_file, crop_size and mirror move to
//   transform_param;
// - V1 `layers` become `layer`: a type that was a number is a name; blobs_lr, weight_decay, param
//   and blob_share_mode become ParamSpecs;
// - `input` with input_shape or input_dim becomes an Input layer, the first one; without either (a
//   model's) it is dropped;
// - the three ParamSpecs that BatchNorm layers had are set to learn nothing.
//
// Returns how to find fields of the net as it is now ("layer.3.type") where `locate` finds them as
// they were. Throws ConfigError for a net of both formats and for what has no meaning in the old
// one.
Locate UpgradeNet(caffe::NetParameter& net, const Locate& locate);

// Whether UpgradeNet would change anything.
bool NeedsUpgrade(const caffe::NetParameter& net);

// The first step of the above: a net of V0 layers to V1. Of each layer left, appends its index
// among the layers as they were to `origins`.
void UpgradeV0Net(caffe::NetParameter& net, const Locate& locate, std::vector<int>& origins);

}  // namespace poseidon
