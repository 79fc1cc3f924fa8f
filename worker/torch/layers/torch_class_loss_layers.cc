// Losses on scores of classes and labels, and Accuracy.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/square.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cfloat>
#include <cmath>
#include <optional>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/shape.h"
#include "worker/torch/layers/torch_labels.h"
#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/layers/torch_loss_normalizer.h"

namespace poseidon {
namespace {

// --- Scores with a label for each of outer x inner places. ---

// How they lie: the classes along the axis between outer and inner. How many there are is the outer
// extent, which a bottom says; those of Filter layers' samples are fewer in some iterations.
struct Labeled {
  int64_t classes;
  int64_t inner;
  LabelRange range;
};

Labeled ToLabeled(const TorchLayerInput& input, int given_axis,
                  std::optional<int64_t> ignore_label) {
  const Shape& shape = input.description.bottoms[0].shape;
  const int axis = input.Axis(given_axis);
  return {.classes = shape[axis],
          .inner = Count(shape, axis + 1, static_cast<int>(shape.size())),
          .range = {.layer = input.description.name(),
                    .count = shape[axis],
                    .samples = shape[0],
                    .ignore = ignore_label}};
}

std::optional<int64_t> IgnoreLabel(const caffe::LossParameter& p) {
  return p.has_ignore_label() ? std::optional<int64_t>(p.ignore_label()) : std::nullopt;
}

at::Tensor Scores(const Labeled& labeled, const at::Tensor& bottom) {
  const int64_t outer = bottom.numel() / (labeled.classes * labeled.inner);
  return bottom.reshape({outer, labeled.classes, labeled.inner});
}

// The labels as outer x 1 x inner numbers of classes, 0 where one is ignored; and which are not.
struct Classes {
  at::Tensor index;
  at::Tensor counted;
};

Classes ToClasses(const Labeled& labeled, const at::Tensor& labels, const Pass& pass) {
  const at::Tensor indices = ToIndices(labeled.range, labels, pass)
                                 .reshape({labels.numel() / labeled.inner, 1, labeled.inner});
  const at::Tensor counted = indices.ne(labeled.range.ignore.value_or(-1));  // -1 is no class
  return {indices.mul(counted), counted};
}

// What losses on log(softmax(scores)) have in common: how the sum is divided, and the gradient,
// which is `slope` but for the division.
class SoftmaxLoss : public TorchLayer {
 public:
  SoftmaxLoss(const TorchLayerInput& input, Labeled labeled,
              caffe::LossParameter::NormalizationMode mode)
      : labeled_(std::move(labeled)),
        mode_(mode),
        bottoms_(input.description.bottoms.size()),
        with_probabilities_(input.description.tops.size() > 1),
        wanted_(input.bottom_needs_gradient[0]) {
    input.CheckNoGradient(1, "labels");
  }

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors&) override {
    const at::AutoGradMode mode(false);
    const Classes classes = ToClasses(labeled_, bottoms[1], pass);
    shape_ = bottoms[0].sizes().vec();
    const at::Tensor logarithms = at::log_softmax(Scores(labeled_, bottoms[0]), 1);
    const at::Tensor normalizer = LossNormalizer(mode_, logarithms.size(0), labeled_.inner,
                                                 classes.counted, logarithms.options());
    Tensors tops = {Sum(logarithms, classes, bottoms).div(normalizer)};
    if (!with_probabilities_ && !wanted_) return tops;
    const at::Tensor probabilities = at::exp(logarithms);
    if (with_probabilities_) tops.push_back(probabilities.reshape(shape_));
    if (wanted_) {
      slope_ = Slope(probabilities, classes, bottoms).mul_(classes.counted).div_(normalizer);
    }
    return tops;
  }

  // As in Caffe, nothing comes back through the probabilities.
  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    Tensors gradients(bottoms_);
    if (top_gradients[0].defined()) gradients[0] = slope_.mul_(top_gradients[0]).reshape(shape_);
    slope_.reset();
    return gradients;
  }

 protected:
  // The loss summed over what counts, and its gradient at the scores, a tensor of its own.
  virtual at::Tensor Sum(const at::Tensor& logarithms, const Classes& classes,
                         const Tensors& bottoms) const = 0;
  virtual at::Tensor Slope(const at::Tensor& probabilities, const Classes& classes,
                           const Tensors& bottoms) const = 0;

  const Labeled labeled_;

 private:
  caffe::LossParameter::NormalizationMode mode_;
  size_t bottoms_;
  bool with_probabilities_;
  bool wanted_;
  Shape shape_;       // of the bottom
  at::Tensor slope_;  // until the backward pass
};

// With label smoothing a part of each label is spread evenly over all classes (Szegedy et al.,
// arXiv 1512.00567, section 7).
class SoftmaxWithLoss : public SoftmaxLoss {
 public:
  SoftmaxWithLoss(const TorchLayerInput& input, Labeled labeled,
                  caffe::LossParameter::NormalizationMode mode)
      : SoftmaxLoss(input, std::move(labeled), mode),
        smoothing_(input.description.label_smoothing) {}

 private:
  at::Tensor Sum(const at::Tensor& logarithms, const Classes& classes,
                 const Tensors&) const override {
    // Caffe takes no probability as less than the least normal float.
    const double least = std::log(FLT_MIN);
    at::Tensor sum = at::gather(logarithms, 1, classes.index).clamp_min_(least);
    if (smoothing_ > 0) {
      const at::Tensor mean = logarithms.clamp_min(least).mean(1, /*keepdim=*/true);
      sum = sum.mul_(1 - smoothing_).add_(mean, smoothing_);
    }
    return sum.mul_(classes.counted).sum().neg_();
  }

  at::Tensor Slope(const at::Tensor& probabilities, const Classes& classes,
                   const Tensors&) const override {
    const at::Tensor one = at::ones_like(classes.index, probabilities.options());
    at::Tensor slope = probabilities.scatter_add(1, classes.index, one.mul_(smoothing_ - 1));
    if (smoothing_ > 0) slope.sub_(smoothing_ / static_cast<double>(labeled_.classes));
    return slope;
  }

  double smoothing_;
};

// The loss of a place is the sum over the classes of H[label][class] * -log(probability), for a
// matrix H of a file or of bottom 2.
class InfogainLoss : public SoftmaxLoss {
 public:
  InfogainLoss(const TorchLayerInput& input, Labeled labeled,
               caffe::LossParameter::NormalizationMode mode, at::Tensor matrix)
      : SoftmaxLoss(input, std::move(labeled), mode), matrix_(std::move(matrix)) {}

 private:
  // The row of each label, as outer x classes x inner.
  at::Tensor Rows(const Classes& classes, const Tensors& bottoms) const {
    const at::Tensor matrix = matrix_.defined() ? matrix_.to(bottoms[0].scalar_type()) : bottoms[2];
    return matrix.reshape({labeled_.classes, labeled_.classes})
        .index_select(0, classes.index.flatten())
        .reshape({classes.index.size(0), labeled_.inner, labeled_.classes})
        .transpose(1, 2);
  }

  at::Tensor Sum(const at::Tensor& logarithms, const Classes& classes,
                 const Tensors& bottoms) const override {
    constexpr double kLeastProbability = 1e-20;  // Caffe's kLOG_THRESHOLD
    return Rows(classes, bottoms)
        .mul(logarithms.clamp_min(std::log(kLeastProbability)))
        .mul_(classes.counted)
        .sum()
        .neg_();
  }

  at::Tensor Slope(const at::Tensor& probabilities, const Classes& classes,
                   const Tensors& bottoms) const override {
    const at::Tensor rows = Rows(classes, bottoms);
    return probabilities.mul(rows.sum(1, /*keepdim=*/true)).sub_(rows);
  }

  at::Tensor matrix_;  // undefined if it is bottom 2
};

at::Tensor ReadInfogainMatrix(const TorchLayerInput& input, int64_t classes) {
  const std::string& file = input.description.parameter.infogain_loss_param().source();
  caffe::BlobProto blob;
  ReadBinaryFile(file, blob);
  const std::vector<float> values = ToValues(blob);
  if (static_cast<int64_t>(values.size()) != classes * classes) {
    input.Fail("the infogain matrix in " + file + " has " + std::to_string(values.size()) +
               " values; expected " + std::to_string(classes) + " x " + std::to_string(classes));
  }
  return at::tensor(values);
}

// --- Scores with a label for each sample. ---

// The scores as samples x classes, which are all that comes after the first axis.
Labeled ToSamples(const TorchLayerInput& input) {
  const Shape& shape = input.description.bottoms[0].shape;
  const int64_t classes = Count(shape) / shape[0];
  return {
      .classes = classes,
      .inner = 1,
      .range = {
          .layer = input.description.name(), .count = classes, .samples = shape[0], .ignore = {}}};
}

// The share of true entries of `correct` among `counted`, 0 of none.
at::Tensor Share(const at::Tensor& correct, const at::Tensor& counted) {
  return correct.div(counted.clamp_min(1));
}

}  // namespace

std::unique_ptr<TorchLayer> MakeSoftmaxWithLoss(const TorchLayerInput& input) {
  const caffe::LayerParameter& p = input.description.parameter;
  return std::make_unique<SoftmaxWithLoss>(
      input, ToLabeled(input, p.softmax_param().axis(), IgnoreLabel(p.loss_param())),
      NormalizationMode(p.loss_param(), caffe::LossParameter::VALID));
}

std::unique_ptr<TorchLayer> MakeInfogainLoss(const TorchLayerInput& input) {
  const caffe::LayerParameter& p = input.description.parameter;
  const Labeled labeled =
      ToLabeled(input, p.infogain_loss_param().axis(), IgnoreLabel(p.loss_param()));
  at::Tensor matrix;
  if (input.description.bottoms.size() > 2) {
    input.CheckNoGradient(2, "the infogain matrix");
  } else {
    matrix = ReadInfogainMatrix(input, labeled.classes).to(input.device);
  }
  return std::make_unique<InfogainLoss>(input, labeled, p.loss_param().normalization(), matrix);
}

// The mean of -log(probability of the label); the bottom is the probabilities.
std::unique_ptr<TorchLayer> MakeMultinomialLogisticLoss(const TorchLayerInput& input) {
  input.CheckNoGradient(1, "labels");
  constexpr double kLeastProbability = 1e-20;  // Caffe's kLOG_THRESHOLD
  return MakeAutogradLayer(
      input,
      [labeled = ToSamples(input)](const Pass& pass, const Tensors& bottoms,
                                   const Tensors&) -> Tensors {
        const Classes classes = ToClasses(labeled, bottoms[1], pass);
        const at::Tensor of_labels = at::gather(Scores(labeled, bottoms[0]), 1, classes.index);
        // Caffe's gradient is 1 / probability also where that is the least one, which autograd
        // would take as constant: so it differentiates a line of that slope and height.
        const at::Tensor taken = of_labels.detach().clamp_min(kLeastProbability);
        const at::Tensor logarithms =
            at::log(taken).add(of_labels.sub(of_labels.detach()).div(taken));
        return {logarithms.sum().div(-static_cast<double>(logarithms.size(0)))};
      });
}

// The score of the label should be above 1, all others below -1; what is missing is the loss, or
// its square.
std::unique_ptr<TorchLayer> MakeHingeLoss(const TorchLayerInput& input) {
  input.CheckNoGradient(1, "labels");
  const bool squared =
      input.description.parameter.hinge_loss_param().norm() == caffe::HingeLossParameter::L2;
  return MakeAutogradLayer(
      input,
      [labeled = ToSamples(input), squared](const Pass& pass, const Tensors& bottoms,
                                            const Tensors&) -> Tensors {
        const Classes classes = ToClasses(labeled, bottoms[1], pass);
        const at::Tensor scores = Scores(labeled, bottoms[0]);
        const at::Tensor sign = at::ones_like(scores.detach()).scatter(1, classes.index, -1);
        const at::Tensor missing = at::relu(scores.mul(sign).add(1));
        const at::Tensor losses = squared ? at::square(missing) : missing;
        return {losses.sum().div(static_cast<double>(losses.size(0)))};
      });
}

// The share of labels that are among the top_k highest predictions; the second top is that of each
// class. Caffe counts a prediction as higher if it is equal.
std::unique_ptr<TorchLayer> MakeAccuracy(const TorchLayerInput& input) {
  const caffe::AccuracyParameter& p = input.description.parameter.accuracy_param();
  const Labeled labeled = ToLabeled(
      input, p.axis(), p.has_ignore_label() ? std::optional(p.ignore_label()) : std::nullopt);
  const int64_t top_k = p.top_k();
  const bool by_class = input.description.tops.size() > 1;
  return MakeLayerWithoutGradient(
      input, [=](const Pass& pass, const Tensors& bottoms, const Tensors&) -> Tensors {
        const Classes classes = ToClasses(labeled, bottoms[1], pass);
        const at::Tensor scores = Scores(labeled, bottoms[0]);
        const at::Tensor rank =
            scores.ge(at::gather(scores, 1, classes.index)).sum(1, /*keepdim=*/true);
        const at::Tensor correct =
            rank.le(top_k).logical_and_(classes.counted).to(scores.scalar_type());
        const at::Tensor counted = classes.counted.to(scores.scalar_type());
        Tensors tops = {Share(correct.sum(), counted.sum())};
        if (by_class) {
          const at::Tensor flat = classes.index.flatten();
          const at::Tensor zeros = at::zeros({labeled.classes}, scores.options());
          tops.push_back(Share(zeros.index_add(0, flat, correct.flatten()),
                               zeros.index_add(0, flat, counted.flatten())));
        }
        return tops;
      });
}

}  // namespace poseidon
