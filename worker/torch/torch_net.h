// TorchNet: one phase of a Caffe net on libtorch.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "caffe_adapter/net/net.h"
#include "worker/engine/batch_reader.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_device.h"
#include "worker/engine/precision.h"
#include "worker/torch/layers/torch_data_layer.h"
#include "worker/torch/layers/torch_labels.h"
#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/pass_graphs.h"
#include "worker/torch/pass_report.h"
#include "worker/torch/stream_graph.h"
#include "worker/torch/torch_loss_scaler.h"

namespace poseidon {

// Where and in what arithmetic a net is computed.
struct TorchArithmetic {
  at::Device device = at::kCPU;
  // Whose memory all memory is that is given here; null: the host's. Outlives the net.
  EngineDevice* engine_device = nullptr;
  Precision precision = Precision::kFloat32;
  std::optional<LossScaling> loss_scaling;  // of gradients, in any precision
  // By which passes are captured; null: they are not. Outlives the net.
  StreamGraphs* graphs = nullptr;
  int64_t passes = 1;  // of an iteration, at most
};

// Steps through a net's layers. Every top is a value of its own, also where a layer works in place:
// a bottom's value is what the last layer before made under that name. The gradient of a value is
// the sum over the layers that read it.
//
// A parameter that layers share by name is its owner's: the first layer's in forward order that
// uses it. Its gradient is the sum over all of them. As the owner's backward pass is the last of
// them, the gradients of its other users wait in memory of the net until then.
//
// With an engine device, nothing waits for it but what returns numbers. Labels are checked then:
// loss() of each pass finds out about one that is no class. It waits for the forward pass only, and
// the next batch goes to the device during the backward pass.
//
// Intermediate values live until the backward pass of the layer that made them, or else until the
// next forward pass. One thread at a time.
class TorchNet {
 public:
  // Opens the files of data layers. Throws ConfigError for what can't be computed, DataError for
  // data that can't be read. `data` also decides dropout, by its seed and rank.
  TorchNet(NetDescription description, const BatchReaderOptions& data,
           const TorchArithmetic& arithmetic = {});

  const NetDescription& description() const { return description_; }

  // Makes `values` the parameters that a step owns (ParameterDescription::owner), one after the
  // other. The memory must outlive the net.
  void BindParameters(int step, std::span<float> values);

  // As Engine's (worker/engine/engine.h): from now on, and until the next call. After some passes
  // the following ones are launched as CUDA graphs, if the net is of layers that can be.
  void SetPauses(const std::optional<std::set<int>>& steps);

  // What the layers that read files read, in the net's order.
  std::vector<wire::TrainingData> data() const;

  // Batches are read as this share's from now on.
  void SetShare(const DataShare& share);

  // The batch of an iteration for the data layers; then `next` is read ahead. What a backward pass
  // that was given up on its way has left does not count.
  void LoadBatch(int64_t iteration, int64_t next);

  void Forward(int step);
  // In the training phase. `target` is for the parameters that the step owns; it gets what other
  // steps that share them add, too.
  void Backward(int step, const GradientBuffers& target);

  // The forward pass's sum of losses by their weights, also after the backward pass. With an engine
  // device throws DataError for a label that is none.
  float loss();
  // A step's first top, a scalar.
  float Scalar(int step) const;
  // The values of a step's top.
  std::vector<float> TopValues(int step, int top) const;
  // Whether a step's results are finite numbers. After its backward pass they are gone, then its
  // forward pass is done again; call it in ascending order of steps.
  bool IsFinite(int step);

 private:
  struct Step {
    std::unique_ptr<TorchLayer> layer;
    std::vector<int> bottoms;  // values
    std::vector<int> tops;     // values
    std::vector<bool> bottom_needs_gradient;
    std::vector<bool> parameter_needs_gradient;
    Tensors parameters;  // its own and shared ones
    // By parameter: the sum of its gradients at the other steps that share it, where the step owns
    // it; where it uses another's, its own gradient until it is added to that sum. Else undefined.
    Tensors shared_gradients;
    bool has_backward = false;  // a gradient is needed at a bottom or for a parameter
  };

  class Builder;

  std::vector<const BatchReader*> Readers() const;
  void ShareParameters();
  // A step's part of the pass: it is next, or part of a graph.
  void Do(const StepCall& call);
  void Compute(const StepCall& call);
  void ComputeForward(int step);
  void ComputeBackward(int step, const GradientBuffers& target);
  // A new pass begins, whose batch has been loaded: with graphs if it is time.
  void BeginCalls();
  void CapturePass();
  // Those that the layers below would have taken.
  void ForgetGradients();
  // To the sums at their owners, and from the sums to `target`.
  void AddToOwners(int step);
  void AddFromUsers(int step, const GradientBuffers& target);
  void Unscale(int step, const GradientBuffers& target);

  // The gradients at a step's tops, those of its own losses included, but for a default weight
  // where readers give the gradient (LayerDescription::loss_by_default).
  Tensors TakeTopGradients(int step);
  // Of the losses by their weights, in the order of steps, one for each weight that is not 0.
  template <typename Function>
  void ForEachLoss(const Function& function) const;
  // Puts what loss() returns and checks on its way to the host.
  void SendReport();

  ParameterGradients Views(int step, const GradientBuffers& target) const;
  Tensors OwnedViews(int step, std::span<float> values) const;
  void AddBottomGradients(const Step& step, const Tensors& gradients);

  NetDescription description_;
  TorchArithmetic arithmetic_;
  std::vector<Step> steps_;
  std::vector<NetValue> values_;
  std::vector<DataLayer*> data_layers_;        // of steps_
  std::unique_ptr<LabelChecks> label_checks_;  // null where labels are checked at once
  std::optional<PassReport> report_;           // with an engine device
  std::optional<LossScaler> scaler_;
  Pass pass_;
  bool in_backward_pass_ = false;  // it has begun, and has not come to the first step

  std::optional<std::set<int>> pauses_;  // none: no graphs
  std::vector<StepCall> calls_;          // of this pass, where it is done step by step
  int whole_passes_ = 0;                 // since SetPauses
  std::optional<PassGraphs> graphs_;
};

}  // namespace poseidon
