// TorchNet: one phase of a Caffe net on libtorch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "caffe_adapter/net.h"
#include "worker/batch_reader.h"
#include "worker/engine.h"
#include "worker/torch_data_layer.h"
#include "worker/torch_layer.h"

namespace poseidon {

// Steps through a net's layers. Every top is a value of its own, also where a layer works in place:
// a bottom's value is what the last layer before made under that name. The gradient of a value is
// the sum over the layers that read it.
//
// Intermediate values live until the backward pass of the layer that made them, or else until the
// next forward pass. One thread at a time.
class TorchNet {
 public:
  // Opens the databases of Data layers. Throws ConfigError for what can't be computed, DataError
  // for data that can't be read. `data` also decides dropout, by its seed and rank.
  TorchNet(NetDescription description, const BatchReaderOptions& data);

  const NetDescription& description() const { return description_; }

  // Makes `values` the parameters of a step. The memory must outlive the net.
  void BindParameters(int step, std::span<float> values);

  // The batch of an iteration for the Data layers; then `next` is read ahead.
  void LoadBatch(int64_t iteration, int64_t next);

  void Forward(int step);
  // In the training phase.
  void Backward(int step, const GradientTarget& target);

  // Of the forward pass: the sum of the losses by their weights; a step's first top, a scalar.
  float loss() const;
  float Scalar(int step) const;

 private:
  struct Step {
    std::unique_ptr<TorchLayer> layer;
    std::vector<int> bottoms;  // values
    std::vector<int> tops;     // values
    std::vector<bool> bottom_needs_gradient;
    std::vector<bool> parameter_needs_gradient;
    Tensors parameters;
    bool has_backward = false;  // a gradient is needed at a bottom or for a parameter
  };

  // A top of a layer.
  struct Value {
    bool needs_gradient = false;
    at::Tensor data;
    at::Tensor
        gradient;  // of the loss, while the backward pass is between its readers and its maker
  };

  class Builder;

  // The gradients at a step's tops, those of its own losses included.
  Tensors TakeTopGradients(int step);
  ParameterGradients Views(int step, const GradientTarget& target) const;
  void AddBottomGradients(const Step& step, const Tensors& gradients);

  NetDescription description_;
  std::vector<Step> steps_;
  std::vector<Value> values_;
  std::vector<DataLayer*> data_layers_;  // of steps_
  Pass pass_;
};

}  // namespace poseidon
