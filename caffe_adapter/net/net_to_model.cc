// From a net's description to what a worker declares to the scheduler.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "caffe_adapter/net/filtered_blobs.h"
#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/recurrence.h"
#include "caffe_adapter/net/solver.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

bool Learns(const LayerDescription& layer) {
  return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                     [](const ParameterDescription& parameter) {
                       return parameter.lr_mult != 0 && !parameter.owner;
                     });
}

// Blobs that come through layers that are trained: who reads one makes its gradient, too.
using TrainedBlobs = std::set<std::string>;

bool ReadsTrained(const LayerDescription& layer, const TrainedBlobs& trained) {
  return std::any_of(layer.bottoms.begin(), layer.bottoms.end(),
                     [&](const BlobDescription& bottom) { return trained.contains(bottom.name); });
}

// Of its own parameters or of those that it shares.
bool IsTrained(const LayerDescription& layer) {
  return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                     [](const ParameterDescription& parameter) { return parameter.lr_mult != 0; });
}

bool SharesParameters(const LayerDescription& layer) {
  return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                     [](const ParameterDescription& parameter) { return parameter.shared; });
}

// What is shared has the sum of several layers' gradients. Factors have as many rows in each
// iteration, which samples that come through a Filter layer have not.
bool GradientIsAProduct(const LayerDescription& layer, const FilteredBlobs& filtered) {
  if (layer.type() != "InnerProduct" || SharesParameters(layer)) return false;
  if (filtered.contains(layer.bottoms[0].name)) return false;
  const caffe::InnerProductParameter& parameter = layer.parameter.inner_product_param();
  const int axes = static_cast<int>(layer.bottoms[0].shape.size());
  return !parameter.transpose() && (parameter.axis() == 1 || parameter.axis() + axes == 1);
}

// Each step multiplies with all matrices but the static input's, which is the same for all steps.
int64_t RecurrentMultiplyAdds(const LayerDescription& layer) {
  const Recurrence recurrence = ToRecurrence(layer.parameter, layer.bottoms[0].shape);
  int64_t sum = 0;
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    const Shape& shape = layer.parameters[i].shape;
    if (shape.size() < 2) continue;  // a bias
    const bool once = recurrence.static_input && i == 2;
    sum += (once ? 1 : recurrence.steps) * recurrence.streams * Count(shape);
  }
  return sum;
}

// Multiply-adds of a forward pass of the whole batch. A layer without a matrix (Scale, for one)
// does one for each number that it makes.
int64_t MultiplyAdds(const LayerDescription& layer) {
  // A Python layer may learn and make nothing.
  const int64_t outputs = layer.tops.empty() ? 0 : Count(layer.tops[0].shape);
  const Shape& weights = layer.parameters[0].shape;
  if (layer.type() == "Convolution") {
    // out_count x (in / group) x kernel: an output adds up all of its filter's weights.
    return outputs * Count(weights, 1, static_cast<int>(weights.size()));
  }
  if (layer.type() == "Deconvolution") {
    // An input is multiplied with all of its filter's weights.
    return Count(layer.bottoms[0].shape) * Count(weights, 1, static_cast<int>(weights.size()));
  }
  if (layer.type() == "InnerProduct") {
    return outputs * weights[layer.parameter.inner_product_param().transpose() ? 0 : 1];
  }
  if (layer.type() == "LSTM" || layer.type() == "RNN") return RecurrentMultiplyAdds(layer);
  return outputs;
}

// What a layer computes that declares nothing, as the forward pass of one that declares its
// parameters, whose backward pass takes twice as long. It takes as much for the gradient of the
// parameters as for that of the input, and each of them only where it is needed.
int64_t UndeclaredMultiplyAdds(const LayerDescription& layer, const TrainedBlobs& trained) {
  // Of BatchNorm's statistics nothing is multiplied with a matrix.
  if (layer.parameters.empty() || layer.tops.empty() || layer.type() == "BatchNorm") return 0;
  constexpr int kProducts = 3;
  const int needed = IsTrained(layer) ? kProducts : ReadsTrained(layer, trained) ? 2 : 1;
  return MultiplyAdds(layer) * needed / kProducts;
}

LayerSpec ToLayerSpec(const LayerDescription& layer, const FilteredBlobs& filtered, int64_t batch) {
  LayerSpec spec;
  spec.set_name(layer.name());
  spec.set_type(layer.type());
  for (const ParameterDescription& parameter : layer.parameters) {
    if (parameter.owner) continue;
    BlobSpec& blob = *spec.add_blobs();
    blob.mutable_shape()->Add(parameter.shape.begin(), parameter.shape.end());
    blob.set_lr_mult(parameter.lr_mult);
    blob.set_decay_mult(parameter.decay_mult);
  }
  if (GradientIsAProduct(layer, filtered)) {
    InnerProductSpec& product = *spec.mutable_inner_product();
    product.set_outputs(layer.parameters[0].shape[0]);
    product.set_inputs(layer.parameters[0].shape[1]);
    product.set_rows(layer.bottoms[0].shape[0]);
  }
  if (batch > 0) spec.set_multiply_adds(MultiplyAdds(layer) / batch);
  return spec;
}

}  // namespace

ModelSpec ToModelSpec(const NetDescription& net, const caffe::SolverParameter& solver) {
  ModelSpec model;
  model.set_name(net.name);
  const FilteredBlobs filtered = FindFilteredBlobs(net);
  TrainedBlobs trained;
  std::vector<int64_t> undeclared(1);  // by the declared layer below, or the first
  for (const LayerDescription& layer : net.layers) {
    if (Learns(layer)) {
      *model.add_layers() = ToLayerSpec(layer, filtered, net.batch);
      undeclared.resize(model.layers_size());
    } else if (net.batch > 0) {
      undeclared.back() += UndeclaredMultiplyAdds(layer, trained) / net.batch;
    }
    if (!IsTrained(layer) && !ReadsTrained(layer, trained)) continue;
    for (const BlobDescription& top : layer.tops) trained.insert(top.name);
  }
  for (int l = 0; l < model.layers_size(); ++l) {
    LayerSpec& layer = *model.mutable_layers(l);
    layer.set_multiply_adds(layer.multiply_adds() + undeclared[l]);
  }
  *model.mutable_update_rule() = ToUpdateRuleSpec(solver);
  model.set_batch(net.batch);
  return model;
}

int64_t ParameterCount(const ModelSpec& model) {
  int64_t count = 0;
  for (const LayerSpec& layer : model.layers()) count += FloatCount(layer);
  return count;
}

}  // namespace poseidon
