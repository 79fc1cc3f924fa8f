#include "worker/torch/torch_net.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/random.h"
#include "worker/torch/capturable_layers.h"
#include "worker/torch/layers/torch_device.h"
#include "worker/torch/torch_error.h"
#include "worker/torch/torch_precision.h"

namespace poseidon {
namespace {

bool Any(const std::vector<bool>& values) {
  return std::find(values.begin(), values.end(), true) != values.end();
}

at::Tensor Flat(std::span<float> values, at::Device device) {
  return View(values, {static_cast<int64_t>(values.size())}, device);
}

void Zero(std::span<float> values, at::Device device) {
  if (!values.empty()) Flat(values, device).zero_();
}

// Images' channels lie innermost where layers are faster so: on CPUs convolutions and pooling are,
// up to several times; a GPU's matrix units, which compute in half types, take them as they lie
// then. In float32 a GPU's convolutions are made for the other order.
bool ChannelsInnermost(const TorchArithmetic& arithmetic) {
  return arithmetic.device.is_cpu() || arithmetic.precision != Precision::kFloat32;
}

}  // namespace

// Whose backward pass reads none of its tops, which are memory of their own.
constexpr std::string_view kForgetTops[] = {"BatchNorm",     "Concat",  "Convolution",
                                            "Deconvolution", "Eltwise", "InnerProduct",
                                            "Pooling",       "Scale"};

// Passes in which libraries find memory and load kernels, and layers make what they keep. What is
// captured must not do that. LayerTimer (client/pace/layer_timer.h) does not count the pass behind
// them, before which all is captured.
constexpr int kPassesBeforeGraphs = 2;

// Connects a net's layers.
class TorchNet::Builder {
 public:
  Builder(TorchNet& net, const BatchReaderOptions& data)
      : net_(net), data_(data), random_seed_(DeriveSeed(data.seed, data.rank)) {
    CountReaders();
  }

  void Add(const LayerDescription& layer) {
    Step step;
    for (const BlobDescription& bottom : layer.bottoms) {
      step.bottoms.push_back(latest_.at(bottom.name));
    }
    SetNeeds(layer, step);
    step.layer = IsDataLayer(layer) ? MakeData(layer) : MakeComputing(layer, step);
    for (const BlobDescription& top : layer.tops) {
      const int value = static_cast<int>(net_.values_.size());
      step.tops.push_back(value);
      latest_[top.name] = value;
      net_.values_.push_back({.needs_gradient = step.has_backward, .data = {}, .gradient = {}});
      makers_.push_back(net_.steps_.size());
    }
    net_.steps_.push_back(std::move(step));
  }

 private:
  void CountReaders() {
    std::map<std::string, size_t> latest;
    for (const LayerDescription& layer : net_.description_.layers) {
      for (const BlobDescription& bottom : layer.bottoms) ++readers_[latest.at(bottom.name)];
      for (size_t top = 0; top < layer.tops.size(); ++top) {
        latest[layer.tops[top].name] = readers_.size();
        readers_.push_back(layer.loss_weights[top] != 0 ? 1 : 0);  // the net itself
      }
    }
  }

  void SetNeeds(const LayerDescription& layer, Step& step) {
    const bool training = net_.description_.phase == caffe::TRAIN;
    for (size_t i = 0; i < step.bottoms.size(); ++i) {
      const int index = static_cast<int>(i);
      const bool stopped =
          index < layer.parameter.propagate_down_size() && !layer.parameter.propagate_down(index);
      step.bottom_needs_gradient.push_back(!stopped &&
                                           net_.values_[step.bottoms[i]].needs_gradient);
    }
    for (const ParameterDescription& parameter : layer.parameters) {
      step.parameter_needs_gradient.push_back(training && parameter.lr_mult != 0);
    }
    step.has_backward = Any(step.bottom_needs_gradient) || Any(step.parameter_needs_gradient);
  }

  std::unique_ptr<TorchLayer> MakeData(const LayerDescription& layer) {
    auto data_layer = MakeDataLayer(layer, data_,
                                    {.device = net_.arithmetic_.device,
                                     .engine_device = net_.arithmetic_.engine_device,
                                     .channels_innermost = ChannelsInnermost(net_.arithmetic_)});
    net_.data_layers_.push_back(data_layer.get());
    return data_layer;
  }

  std::unique_ptr<TorchLayer> MakeComputing(const LayerDescription& layer, const Step& step) {
    const TorchLayerInput input = InputOf(layer, step);
    const std::optional<size_t> norm = NormOf(layer, step);
    if (!norm) return WithPrecision(MakeTorchLayer(input), input, net_.arithmetic_.precision);
    Step& norm_step = net_.steps_[*norm];
    const TorchLayerInput norm_input = InputOf(net_.description_.layers[*norm], norm_step);
    ScaledBatchNorm both = MakeScaledBatchNorm(norm_input, input);
    norm_step.layer = WithPrecision(std::move(both.norm), norm_input, net_.arithmetic_.precision);
    return WithPrecision(std::move(both.scale), input, net_.arithmetic_.precision);
  }

  TorchLayerInput InputOf(const LayerDescription& layer, const Step& step) const {
    return {.description = layer,
            .bottom_needs_gradient = step.bottom_needs_gradient,
            .parameter_needs_gradient = step.parameter_needs_gradient,
            .may_overwrite_bottom = !step.bottoms.empty() && MayOverwrite(step.bottoms[0]),
            .seed = DeriveSeed(random_seed_, layer.name()),
            .device = net_.arithmetic_.device,
            .passes = net_.arithmetic_.passes,
            .rank = data_.rank,
            .workers = data_.workers};
  }

  const LayerDescription& MakerOf(int value) const {
    return net_.description_.layers[makers_[value]];
  }

  // Of a value with one reader.
  bool MayOverwrite(int value) const {
    const auto* const forgets = std::ranges::find(kForgetTops, MakerOf(value).type());
    return readers_[value] == 1 && forgets != std::end(kForgetTops);
  }

  // The step of the BatchNorm layer that a Scale layer is computed with.
  std::optional<size_t> NormOf(const LayerDescription& layer, const Step& step) const {
    if (step.bottoms.size() != 1 || readers_[step.bottoms[0]] != 1) return std::nullopt;
    if (!CanScaleBatchNorm(MakerOf(step.bottoms[0]), layer)) return std::nullopt;
    return makers_[step.bottoms[0]];
  }

  TorchNet& net_;
  const BatchReaderOptions& data_;
  uint64_t random_seed_;
  std::map<std::string, int> latest_;  // value by blob name
  // By value:
  std::vector<int> readers_;
  std::vector<size_t> makers_;  // steps
};

TorchNet::TorchNet(NetDescription description, const BatchReaderOptions& data,
                   const TorchArithmetic& arithmetic)
    : description_(std::move(description)), arithmetic_(arithmetic) {
  Builder builder(*this, data);
  for (const LayerDescription& layer : description_.layers) builder.Add(layer);
  ShareParameters();
  if (arithmetic_.engine_device != nullptr) {
    label_checks_ = std::make_unique<LabelChecks>();
    report_.emplace(*arithmetic_.engine_device);
  }
  pass_.later = label_checks_.get();
  if (arithmetic_.loss_scaling) {
    std::vector<std::string> names;
    for (const LayerDescription& layer : description_.layers) names.push_back(layer.name());
    scaler_.emplace(std::move(names), *arithmetic_.loss_scaling, arithmetic_.device);
  }
  pass_.data = ReaderOfSamples(Readers(), data.shuffle);
}

std::vector<const BatchReader*> TorchNet::Readers() const {
  std::vector<const BatchReader*> readers;
  for (const DataLayer* layer : data_layers_) {
    if (layer->reader() != nullptr) readers.push_back(layer->reader());
  }
  return readers;
}

std::vector<wire::TrainingData> TorchNet::data() const {
  std::vector<wire::TrainingData> data;
  for (const BatchReader* reader : Readers()) data.push_back(reader->data());
  return data;
}

void TorchNet::SetShare(const DataShare& share) {
  for (const Step& step : steps_) step.layer->SetShare(share);
}

void TorchNet::ShareParameters() {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<ParameterDescription>& parameters = description_.layers[i].parameters;
    steps_[i].parameters.resize(parameters.size());
    steps_[i].shared_gradients.resize(parameters.size());
    for (size_t blob = 0; blob < parameters.size(); ++blob) {
      if (!parameters[blob].owner || !steps_[i].parameter_needs_gradient[blob]) continue;
      steps_[i].shared_gradients[blob] = at::zeros(parameters[blob].shape, arithmetic_.device);
      const ParameterOwner& owner = *parameters[blob].owner;
      at::Tensor& sum = steps_[owner.layer].shared_gradients[owner.blob];
      const Shape& shape = description_.layers[owner.layer].parameters[owner.blob].shape;
      if (!sum.defined()) sum = at::zeros(shape, arithmetic_.device);
    }
  }
}

// A tensor for each parameter of the step's layer that it owns, which lie one after the other in
// `values`; undefined ones for the others, and for all where `values` is empty.
Tensors TorchNet::OwnedViews(int step, std::span<float> values) const {
  const bool none = values.empty();
  Tensors views;
  for (const ParameterDescription& parameter : description_.layers[step].parameters) {
    at::Tensor& view = views.emplace_back();
    if (parameter.owner || none) continue;
    const size_t count = Count(parameter.shape);
    CHECK_LE(count, values.size());
    view = View(values.first(count), parameter.shape, arithmetic_.device);
    values = values.subspan(count);
  }
  CHECK(values.empty());
  return views;
}

void TorchNet::BindParameters(int step, std::span<float> values) {
  SetPauses(std::exchange(pauses_, std::nullopt));  // graphs read the memory that was bound
  const Tensors views = OwnedViews(step, values);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<ParameterDescription>& parameters = description_.layers[i].parameters;
    for (size_t blob = 0; blob < parameters.size(); ++blob) {
      const std::optional<ParameterOwner>& owner = parameters[blob].owner;
      const bool own = static_cast<int>(i) == step && !owner;
      if (!own && (!owner || owner->layer != step)) continue;
      steps_[i].parameters[blob] = views[own ? blob : owner->blob].view(parameters[blob].shape);
    }
  }
}

void TorchNet::LoadBatch(int64_t iteration, int64_t next) {
  if (report_) {
    if (report_->sent()) loss();  // whose labels somebody has to look at
    report_->Clear();
    label_checks_->Clear();
  }
  if (scaler_) scaler_->EndPass();
  if (in_backward_pass_) ForgetGradients();
  pass_.iteration = iteration;
  for (DataLayer* layer : data_layers_) layer->Load(iteration, next);
  BeginCalls();
}

void TorchNet::SetPauses(const std::optional<std::set<int>>& steps) {
  if (graphs_) ForgetGradients();  // those that graphs have read are still there
  graphs_.reset();
  calls_.clear();
  whole_passes_ = 0;
  pauses_ = arithmetic_.graphs != nullptr ? steps : std::nullopt;
}

void TorchNet::BeginCalls() {
  if (graphs_) return graphs_->Begin();
  if (!pauses_) return;
  if (calls_.size() == 2 * steps_.size() && ++whole_passes_ == kPassesBeforeGraphs) CapturePass();
  calls_.clear();
}

void TorchNet::CapturePass() {
  std::vector<PassGraphs::Step> steps;
  for (int step = 0; step < static_cast<int>(steps_.size()); ++step) {
    const LayerDescription& layer = description_.layers[step];
    const bool captured = IsAlikeEachPass(layer);
    if (!captured && !MayBeDoneTwice(layer)) {
      LOG(INFO) << "passes are launched step by step: layer \"" << layer.name() << "\" ("
                << layer.type() << ") can't be captured in CUDA graphs, nor stand between them";
      return pauses_.reset();
    }
    steps.push_back({steps_[step].bottoms, steps_[step].tops, captured, pauses_->contains(step)});
  }
  try {
    arithmetic_.graphs->Begin();
    graphs_.emplace(*arithmetic_.graphs, values_, std::move(steps), std::move(calls_),
                    [this](const StepCall& call) { Compute(call); });
    LOG(INFO) << "a pass is launched as " << graphs_->graphs() << " CUDA graphs and "
              << graphs_->steps_between() << " steps between them";
  } catch (const std::exception& error) {
    LOG(WARNING) << "passes are launched step by step, as they can't be captured as CUDA graphs: "
                 << WordsOf(error);
    SetPauses(std::nullopt);
  }
  // Of a pass that was none.
  if (label_checks_) label_checks_->Clear();
  ForgetGradients();
}

void TorchNet::Do(const StepCall& call) {
  if (graphs_) return graphs_->Do(call);
  if (pauses_) calls_.push_back(call);
  Compute(call);
}

void TorchNet::Compute(const StepCall& call) {
  if (call.backward) return ComputeBackward(call.step, call.target);
  ComputeForward(call.step);
}

void TorchNet::ForgetGradients() {
  for (NetValue& value : values_) value.gradient.reset();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<ParameterDescription>& parameters = description_.layers[i].parameters;
    for (size_t blob = 0; blob < parameters.size(); ++blob) {
      const at::Tensor& sum = steps_[i].shared_gradients[blob];
      if (!parameters[blob].owner && sum.defined()) sum.zero_();
    }
  }
  in_backward_pass_ = false;
}

void TorchNet::Forward(int step) {
  Do({.step = step, .backward = false, .target = {}});
  const bool last = step + 1 == static_cast<int>(steps_.size());
  if (last && report_ && !report_->sent()) SendReport();
}

void TorchNet::Backward(int step, const GradientBuffers& target) {
  for (DataLayer* layer : data_layers_) layer->SendAhead();
  in_backward_pass_ = step > 0;
  if (scaler_) scaler_->BeginBackward();
  Do({.step = step, .backward = true, .target = target});
}

void TorchNet::ComputeForward(int step_index) {
  Step& step = steps_[step_index];
  CHECK_EQ(step.parameters.size(), step.parameter_needs_gradient.size());
  Tensors bottoms;
  for (const int bottom : step.bottoms) bottoms.push_back(values_[bottom].data);
  Tensors tops = step.layer->Forward(pass_, bottoms, step.parameters);
  for (size_t i = 0; i < tops.size(); ++i) values_[step.tops[i]].data = std::move(tops[i]);
}

void TorchNet::ComputeBackward(int step_index, const GradientBuffers& target) {
  const Step& step = steps_[step_index];
  const Tensors top_gradients = TakeTopGradients(step_index);
  const bool reached = std::any_of(top_gradients.begin(), top_gradients.end(),
                                   [](const at::Tensor& gradient) { return gradient.defined(); });
  if (step.has_backward && reached) {
    AddBottomGradients(step, step.layer->Backward(top_gradients, Views(step_index, target)));
    AddToOwners(step_index);
  } else {  // the layer does not lead to a loss
    Zero(target.dense, arithmetic_.device);
    Zero(target.u, arithmetic_.device);
    Zero(target.v, arithmetic_.device);
  }
  AddFromUsers(step_index, target);
  if (scaler_) Unscale(step_index, target);
}

void TorchNet::AddToOwners(int step_index) {
  const std::vector<ParameterDescription>& parameters = description_.layers[step_index].parameters;
  for (size_t blob = 0; blob < parameters.size(); ++blob) {
    const at::Tensor& gradient = steps_[step_index].shared_gradients[blob];
    if (!parameters[blob].owner || !gradient.defined()) continue;
    const ParameterOwner& owner = *parameters[blob].owner;
    const at::Tensor& sum = steps_[owner.layer].shared_gradients[owner.blob];
    sum.add_(gradient.view(sum.sizes()));
  }
}

void TorchNet::AddFromUsers(int step_index, const GradientBuffers& target) {
  if (target.dense.empty()) return;  // factors: nothing is shared
  const Tensors views = OwnedViews(step_index, target.dense);
  for (size_t blob = 0; blob < views.size(); ++blob) {
    const at::Tensor& sum = steps_[step_index].shared_gradients[blob];
    if (!views[blob].defined() || !sum.defined()) continue;
    views[blob].add_(sum);
    sum.zero_();
  }
}

// Of factors, u is a gradient and v is not.
void TorchNet::Unscale(int step_index, const GradientBuffers& target) {
  const std::span<float> gradient = target.u.empty() ? target.dense : target.u;
  if (!gradient.empty()) scaler_->Unscale(step_index, Flat(gradient, arithmetic_.device));
}

Tensors TorchNet::TakeTopGradients(int step_index) {
  const LayerDescription& layer = description_.layers[step_index];
  const std::vector<int>& tops = steps_[step_index].tops;
  Tensors gradients;
  for (size_t i = 0; i < tops.size(); ++i) {
    NetValue& top = values_[tops[i]];
    at::Tensor gradient = std::exchange(top.gradient, {});
    if (layer.loss_weights[i] == 0) {
      top.data.reset();  // all who read it are done
    } else if (!layer.loss_by_default || !gradient.defined()) {
      at::Tensor own = at::full(top.data.sizes(), layer.loss_weights[i], top.data.options());
      if (scaler_) own.mul_(scaler_->scale());
      gradient = gradient.defined() ? gradient.add(own) : own;
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

ParameterGradients TorchNet::Views(int step_index, const GradientBuffers& target) const {
  const std::vector<ParameterDescription>& parameters = description_.layers[step_index].parameters;
  const std::vector<bool>& needs = steps_[step_index].parameter_needs_gradient;
  ParameterGradients gradients;
  if (!Any(needs)) {
    gradients.blobs.resize(parameters.size());
    return gradients;
  }
  if (!target.u.empty()) {
    const Shape& weights = parameters[0].shape;
    const at::Device device = arithmetic_.device;
    gradients.u =
        View(target.u, {static_cast<int64_t>(target.u.size()) / weights[0], weights[0]}, device);
    gradients.v =
        View(target.v, {static_cast<int64_t>(target.v.size()) / weights[1], weights[1]}, device);
    return gradients;
  }
  gradients.blobs = OwnedViews(step_index, target.dense);
  for (size_t i = 0; i < needs.size(); ++i) {
    if (parameters[i].owner) {
      gradients.blobs[i] = steps_[step_index].shared_gradients[i];
    } else if (!needs[i] && gradients.blobs[i].defined()) {
      gradients.blobs[i].zero_();
      gradients.blobs[i].reset();
    }
  }
  return gradients;
}

void TorchNet::AddBottomGradients(const Step& step, const Tensors& gradients) {
  for (size_t i = 0; i < step.bottoms.size(); ++i) {
    if (!step.bottom_needs_gradient[i] || !gradients[i].defined()) continue;
    at::Tensor& sum = values_[step.bottoms[i]].gradient;
    // Not in place: layers may give the same tensor to several bottoms.
    sum = sum.defined() ? sum.add(gradients[i]) : gradients[i];
  }
}

float TorchNet::Scalar(int step) const { return values_[steps_[step].tops[0]].data.item<float>(); }

std::vector<float> TorchNet::TopValues(int step, int top) const {
  const at::Tensor values = values_[steps_[step].tops[top]].data.cpu().contiguous();
  return {values.data_ptr<float>(), values.data_ptr<float>() + values.numel()};
}

bool TorchNet::IsFinite(int step) {
  const std::vector<int>& tops = steps_[step].tops;
  const auto is_there = [this](int top) { return values_[top].data.defined(); };
  if (!std::all_of(tops.begin(), tops.end(), is_there)) ComputeForward(step);
  return std::all_of(tops.begin(), tops.end(),
                     [this](int top) { return values_[top].data.isfinite().all().item<bool>(); });
}

template <typename Function>
void TorchNet::ForEachLoss(const Function& function) const {
  for (size_t step = 0; step < steps_.size(); ++step) {
    const std::vector<float>& weights = description_.layers[step].loss_weights;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] != 0) function(weights[i], values_[steps_[step].tops[i]].data);
    }
  }
}

void TorchNet::SendReport() {
  Tensors numbers;
  ForEachLoss([&](float, const at::Tensor& top) { numbers.push_back(top.sum()); });
  for (const at::Tensor& all_valid : label_checks_->all_valid()) numbers.push_back(all_valid);
  report_->Send(numbers);
}

float TorchNet::loss() {
  double loss = 0;
  if (!report_) {
    ForEachLoss(
        [&](float weight, const at::Tensor& top) { loss += weight * top.sum().item<double>(); });
    return static_cast<float>(loss);
  }
  std::span<const double> numbers = report_->Read();
  ForEachLoss([&](float weight, const at::Tensor&) {
    loss += weight * numbers.front();
    numbers = numbers.subspan(1);
  });
  label_checks_->Check(numbers, pass_);
  return static_cast<float>(loss);
}

}  // namespace poseidon
