// Python layers: they compute on the host, on the tensors' own memory where that lies as Caffe's
// does. One that has neither bottoms nor parameters is a data layer.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "caffe_adapter/data/data_share.h"
#include "caffe_adapter/python/net_python_layer.h"
#include "core/error.h"
#include "worker/torch/layers/torch_data_layer.h"
#include "worker/torch/layers/torch_device.h"
#include "worker/torch/layers/torch_layer.h"

namespace poseidon {
namespace {

// The user's layer, whose errors get the layer's place and name.
class UsersLayer {
 public:
  UsersLayer(LayerDescription description, const PythonPlace& place)
      : description_(std::move(description)) {
    std::vector<Shape> bottoms;
    for (const BlobDescription& bottom : description_.bottoms) bottoms.push_back(bottom.shape);
    layer_ = MakeNetPythonLayer(description_.parameter, bottoms, description_.where, place);
    CheckShapes();
  }

  const LayerDescription& description() const { return description_; }
  bool has_backward() const { return layer_->has_backward(); }

  [[noreturn]] void Fail(const std::string& message) const {
    throw ConfigError(description_.where,
                      "layer \"" + description_.name() + "\" (Python): " + message);
  }

  void SetShare(const DataShare& share) {
    layer_->SetPlace(share.place, share.parts.empty() ? share.tenures.back().workers
                                                      : static_cast<int64_t>(share.parts.size()));
  }

  std::vector<float*> Forward(int64_t iteration, const std::vector<PythonMemory>& bottoms,
                              const std::vector<PythonMemory>& parameters) {
    return Named("forward", [&] { return layer_->Forward(iteration, bottoms, parameters); });
  }

  std::vector<float*> Backward(const std::vector<PythonMemory>& top_gradients,
                               const std::vector<bool>& propagate_down) {
    return Named("backward", [&] { return layer_->Backward(top_gradients, propagate_down); });
  }

 private:
  template <typename Call>
  auto Named(const std::string& function, Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const PythonError& error) {
      ThrowPythonError(error, function, description_.parameter, description_.where);
    }
  }

  // The net's description is of another object of the class.
  void CheckShapes() const {
    for (size_t i = 0; i < description_.tops.size(); ++i) {
      CheckShape("top \"" + description_.tops[i].name + "\"", layer_->top_shapes()[i],
                 description_.tops[i].shape);
    }
    if (layer_->parameters().size() != description_.parameters.size()) {
      Fail("setup has added " + std::to_string(layer_->parameters().size()) +
           " blobs, but when the net was described " +
           std::to_string(description_.parameters.size()) + "; it must do the same each time");
    }
    for (size_t i = 0; i < description_.parameters.size(); ++i) {
      CheckShape("parameter blob " + std::to_string(i), layer_->parameters()[i].shape,
                 description_.parameters[i].shape);
    }
  }

  void CheckShape(const std::string& what, const Shape& found, const Shape& described) const {
    if (found == described) return;
    Fail(what + " is " + ToString(found) + ", but was " + ToString(described) +
         " when the net was described; the sizes of a net are fixed, so a layer's must be the same "
         "each time that it is set up, at every rank");
  }

  LayerDescription description_;
  std::unique_ptr<PythonLayer> layer_;
};

// On the host, in Caffe's order: the tensor's own memory if it is like that.
at::Tensor OnHost(const at::Tensor& tensor) { return tensor.to(at::kCPU, at::kFloat).contiguous(); }

PythonMemory ToMemory(const at::Tensor& tensor, bool writable) {
  return {.values = tensor.data_ptr<float>(),
          .count = tensor.numel(),
          .writable = writable,
          .owner = std::make_shared<at::Tensor>(tensor)};
}

class ComputingLayer : public TorchLayer {
 public:
  explicit ComputingLayer(const TorchLayerInput& input)
      : layer_(input.description, {.rank = input.rank, .workers = input.workers}),
        bottom_needs_gradient_(input.bottom_needs_gradient),
        parameter_needs_gradient_(input.parameter_needs_gradient),
        device_(input.device) {
    bool any = false;
    for (const bool needs : bottom_needs_gradient_) any |= needs;
    for (const bool needs : parameter_needs_gradient_) any |= needs;
    if (any && !layer_.has_backward()) {
      layer_.Fail("class " + input.description.parameter.python_param().layer() +
                  " has no method backward, but it or a bottom learns; write one, or set "
                  "propagate_down: false on the layer to stop there");
    }
  }

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) override {
    std::vector<PythonMemory> bottom_memory;
    for (const at::Tensor& bottom : bottoms) {
      bottom_memory.push_back(ToMemory(OnHost(bottom), false));
    }
    parameters_.clear();
    std::vector<PythonMemory> parameter_memory;
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters_.push_back(OnHost(parameters[i]));
      parameter_memory.push_back(ToMemory(parameters_[i], MayChange(i)));
    }
    const std::vector<float*> tops =
        layer_.Forward(pass.iteration, bottom_memory, parameter_memory);
    for (size_t i = 0; i < parameters.size() && !device_.is_cpu(); ++i) {
      if (MayChange(i)) parameters[i].copy_(parameters_[i]);
    }
    Tensors result;
    for (size_t i = 0; i < tops.size(); ++i) {
      result.push_back(ToDevice(tops[i], layer_.description().tops[i].shape));
    }
    return result;
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const float weight = TakeOutWeight(top_gradients);
    std::vector<PythonMemory> top_memory;
    for (size_t i = 0; i < top_gradients.size(); ++i) {
      const at::Tensor& gradient = top_gradients[i];
      const at::Tensor on_host =
          gradient.defined() ? OnHost(gradient) : at::zeros(layer_.description().tops[i].shape);
      top_memory.push_back(ToMemory(weight == 1 ? on_host : on_host.div(weight), false));
    }
    const std::vector<float*> found = layer_.Backward(top_memory, bottom_needs_gradient_);
    const size_t bottoms = bottom_needs_gradient_.size();
    Tensors bottom_gradients(bottoms);
    for (size_t i = 0; i < bottoms; ++i) {
      if (!bottom_needs_gradient_[i]) continue;
      bottom_gradients[i] = ToDevice(found[i], layer_.description().bottoms[i].shape);
      if (weight != 1) bottom_gradients[i] = bottom_gradients[i].mul(weight);
    }
    for (size_t i = 0; i < parameter_needs_gradient_.size(); ++i) {
      if (!parameter_needs_gradient_[i]) continue;
      const Shape& shape = layer_.description().parameters[i].shape;
      gradients.blobs[i].copy_(at::from_blob(found[bottoms + i], shape));
      if (weight != 1) gradients.blobs[i].mul_(weight);
    }
    return bottom_gradients;
  }

  void SetShare(const DataShare& share) override { layer_.SetShare(share); }

 private:
  // Whether the layer may write to the blob, which is its worker's alone then. A layer that learns
  // is the job's with all of its blobs: their values come from the servers, and are compared.
  bool MayChange(size_t blob) const {
    const std::vector<ParameterDescription>& own = layer_.description().parameters;
    return !own[blob].owner && std::ranges::none_of(own, [](const ParameterDescription& parameter) {
      return parameter.lr_mult != 0 && !parameter.owner;
    });
  }

  // A loss layer may take for granted that its weight is 1, as Caffe's own example does, while here
  // the weight is also its share among devices, or a scale against underflow. So its top's diff is
  // 1, and what comes back is multiplied: gradients are linear in the top's.
  float TakeOutWeight(const Tensors& top_gradients) const {
    const std::vector<float>& weights = layer_.description().loss_weights;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;
      const auto weight = top_gradients[i].flatten()[0].item<float>();
      return weight == 0 ? 1 : weight;
    }
    return 1;
  }

  at::Tensor ToDevice(float* values, const Shape& shape) const {
    const at::Tensor on_host = at::from_blob(values, shape);
    return device_.is_cpu() ? on_host : CopyInStream(on_host, device_);
  }

  UsersLayer layer_;
  std::vector<bool> bottom_needs_gradient_;
  std::vector<bool> parameter_needs_gradient_;
  at::Device device_;
  Tensors parameters_;  // of the forward pass
};

class PythonDataLayer : public DataLayer {
 public:
  PythonDataLayer(const LayerDescription& description, const BatchReaderOptions& options,
                  const BatchPlace& place)
      : layer_(description, {.rank = options.rank, .workers = options.workers}), place_(place) {}

  void SetShare(const DataShare& share) override { layer_.SetShare(share); }

  // Here, and not in Forward, which may be asked for the same batch again.
  void Load(int64_t iteration, int64_t) override { tops_ = layer_.Forward(iteration, {}, {}); }

  Tensors Forward(const Pass&, const Tensors&, const Tensors&) override {
    Tensors tops;
    for (size_t i = 0; i < tops_.size(); ++i) {
      const Shape& shape = layer_.description().tops[i].shape;
      tops.push_back(ToBatchTensor({tops_[i], static_cast<size_t>(Count(shape))}, shape, place_));
    }
    return tops;
  }

 private:
  UsersLayer layer_;
  BatchPlace place_;
  std::vector<float*> tops_;
};

}  // namespace

std::unique_ptr<TorchLayer> MakePython(const TorchLayerInput& input) {
  return std::make_unique<ComputingLayer>(input);
}

std::unique_ptr<DataLayer> MakePythonData(const LayerDescription& layer,
                                          const BatchReaderOptions& options,
                                          const BatchPlace& place) {
  return std::make_unique<PythonDataLayer>(layer, options, place);
}

}  // namespace poseidon
