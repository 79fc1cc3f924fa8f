// Mixed precision: layers that compute in a half type, float16 or bfloat16, between layers that
// compute in float32.
//
// After Micikevicius et al., Mixed precision training, arXiv 1710.03740: parameters, their updates
// and the gradients handed out stay float32 (section 3.1); weights are rounded for each pass; sums
// of products are added up in float32 (section 3.3). What small gradients need is in
// worker/torch/torch_loss_scaler.h (section 3.2). bfloat16 has the range of float32 and needs none
// of that (Kalamkar et al., arXiv 1905.12322).
//
//   half type    Convolution, Deconvolution, InnerProduct: bottoms, weights, top; so their
//                gradients, except sufficient factors and the layer's gradient, which are float32
//                numbers that were rounded to the half type
//   as it comes  layers that choose, move or add values: ReLU, Dropout, Pooling by maximum or mean,
//                Eltwise, Concat, Slice, Split, Reshape, ...; and BatchNorm, Scale and Bias, whose
//                statistics and parameters are float32: in the half type if all bottoms are
//   float32      all others: losses, Softmax, LRN and all that takes powers or exponentials; and
//                every layer whose top counts as a loss
//
// Values between layers are of the type that their layer computes in; who reads them in another
// converts them. Data, labels and losses are float32.
//
// On the CPU, whose libraries do not have all operators in half types and none that is faster, a
// layer computes in float32 on rounded values and rounds what it finds. That is what a GPU does,
// but for roundings within a layer, so both train alike, also float16.
#pragma once

#include <memory>

#include "worker/engine/precision.h"
#include "worker/torch/layers/torch_layer.h"

namespace poseidon {

// The layer `made` from `input`, computing in `precision`; parameters and their gradients are
// float32.
std::unique_ptr<TorchLayer> WithPrecision(std::unique_ptr<TorchLayer> made,
                                          const TorchLayerInput& input, Precision precision);

}  // namespace poseidon
