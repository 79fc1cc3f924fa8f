// Layers on predictions and labels.
#include <ATen/core/Reduction.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "caffe_adapter/shape.h"
#include "core/error.h"
#include "worker/batch_reader.h"
#include "worker/torch_layer.h"

namespace poseidon {
namespace {

// How predictions and labels lie: a label for each of outer x inner places, of one of the classes
// along the axis between them.
struct Labelled {
  std::string layer;
  int64_t outer;
  int64_t classes;
  int64_t inner;
  int64_t samples;
  std::optional<int64_t> ignore_label;
};

Labelled ToLabelled(const TorchLayerInput& input, int given_axis) {
  const Shape& shape = input.description.bottoms[0].shape;
  const int axes = static_cast<int>(shape.size());
  const int axis = given_axis < 0 ? given_axis + axes : given_axis;
  return {.layer = input.description.name(),
          .outer = Count(shape, 0, axis),
          .classes = shape[axis],
          .inner = Count(shape, axis + 1, axes),
          .samples = shape[0],
          .ignore_label = {}};
}

// The labels as outer x inner integers. Throws DataError for one that is no class.
at::Tensor ToClasses(const Labelled& labelled, const at::Tensor& labels, const Pass& pass) {
  const at::Tensor classes = labels.reshape({labelled.outer, labelled.inner}).to(at::kLong);
  const int64_t* values = classes.data_ptr<int64_t>();
  for (int64_t i = 0; i < classes.numel(); ++i) {
    const bool ignored = labelled.ignore_label == values[i];
    if (ignored || (values[i] >= 0 && values[i] < labelled.classes)) continue;
    const int64_t sample = i / (classes.numel() / labelled.samples);
    const std::string which = pass.data ? pass.data->DescribeSample(sample)
                                        : "sample " + std::to_string(sample) + " of the batch";
    throw DataError("layer \"" + labelled.layer + "\": the label of " + which + " is " +
                    std::to_string(values[i]) + "; the layer has classes 0 to " +
                    std::to_string(labelled.classes - 1));
  }
  return classes;
}

caffe::LossParameter::NormalizationMode Normalization(const caffe::LossParameter& parameter) {
  if (parameter.has_normalization() || !parameter.has_normalize()) return parameter.normalization();
  return parameter.normalize() ? caffe::LossParameter::VALID : caffe::LossParameter::BATCH_SIZE;
}

// What the sum of the losses is divided by.
int64_t Normalizer(const Labelled& labelled, const at::Tensor& classes,
                   caffe::LossParameter::NormalizationMode mode) {
  switch (mode) {
    case caffe::LossParameter::NONE:
      return 1;
    case caffe::LossParameter::BATCH_SIZE:
      return labelled.outer;
    case caffe::LossParameter::VALID:
      if (labelled.ignore_label) {
        return std::max<int64_t>(1, classes.ne(*labelled.ignore_label).sum().item<int64_t>());
      }
      return labelled.outer * labelled.inner;
    default:
      return labelled.outer * labelled.inner;
  }
}

// The share of true entries of `correct` among `counted`, 0 of none.
at::Tensor Share(const at::Tensor& correct, const at::Tensor& counted) {
  return correct.div(counted.clamp_min(1));
}

}  // namespace

std::unique_ptr<TorchLayer> MakeSoftmaxWithLoss(const TorchLayerInput& input) {
  if (input.bottom_needs_gradient[1]) {
    input.Fail("there is no gradient for labels, but bottom \"" +
               input.description.bottoms[1].name + "\" depends on learned parameters");
  }
  const caffe::LayerParameter& p = input.description.parameter;
  Labelled labelled = ToLabelled(input, p.softmax_param().axis());
  if (p.loss_param().has_ignore_label()) labelled.ignore_label = p.loss_param().ignore_label();
  const auto mode = Normalization(p.loss_param());
  const bool with_probabilities = input.description.tops.size() > 1;
  return MakeAutogradLayer(
      input, [=](const Pass& pass, const Tensors& bottoms, const Tensors&) -> Tensors {
        const at::Tensor classes = ToClasses(labelled, bottoms[1], pass);
        const at::Tensor scores =
            bottoms[0].reshape({labelled.outer, labelled.classes, labelled.inner});
        const at::Tensor logarithms = at::log_softmax(scores, 1);
        // -1 is no class: nothing is ignored.
        const at::Tensor sum =
            at::nll_loss_nd(logarithms, classes, /*weight=*/{}, at::Reduction::Sum,
                            labelled.ignore_label.value_or(-1));
        Tensors tops = {sum.div(Normalizer(labelled, classes, mode))};
        if (with_probabilities) tops.push_back(at::exp(logarithms).reshape(bottoms[0].sizes()));
        return tops;
      });
}

// The share of labels that are among the top_k highest predictions; the second top is that of each
// class. Caffe counts a prediction as higher if it is equal.
std::unique_ptr<TorchLayer> MakeAccuracy(const TorchLayerInput& input) {
  const caffe::AccuracyParameter& p = input.description.parameter.accuracy_param();
  Labelled labelled = ToLabelled(input, p.axis());
  if (p.has_ignore_label()) labelled.ignore_label = p.ignore_label();
  const int64_t top_k = p.top_k();
  const bool by_class = input.description.tops.size() > 1;
  TorchLayerInput no_gradient = input;
  no_gradient.bottom_needs_gradient.assign(2, false);
  return MakeAutogradLayer(
      no_gradient, [=](const Pass& pass, const Tensors& bottoms, const Tensors&) -> Tensors {
        const at::Tensor classes = ToClasses(labelled, bottoms[1], pass);
        const at::Tensor valid = classes.ne(labelled.ignore_label.value_or(-1));
        const at::Tensor index = classes.mul(valid).unsqueeze(1);
        const at::Tensor scores =
            bottoms[0].reshape({labelled.outer, labelled.classes, labelled.inner});
        const at::Tensor rank = scores.ge(scores.gather(1, index)).sum(1);
        const at::Tensor correct = rank.le(top_k).logical_and(valid).to(scores.scalar_type());
        const at::Tensor counted = valid.to(scores.scalar_type());
        Tensors tops = {Share(correct.sum(), counted.sum())};
        if (by_class) {
          const at::Tensor flat = index.flatten();
          const at::Tensor zeros = at::zeros({labelled.classes}, scores.options());
          tops.push_back(Share(zeros.index_add(0, flat, correct.flatten()),
                               zeros.index_add(0, flat, counted.flatten())));
        }
        return tops;
      });
}

}  // namespace poseidon
