// Shapes of losses, and of Accuracy.
#include "caffe_adapter/net/layer_types.h"

namespace poseidon {
namespace {

// Predictions with a label for each of their positions: all axes but that of the classes.
void CheckLabels(const LayerInput& input, int class_axis) {
  const Shape& scores = input.bottoms[0];
  const int axes = static_cast<int>(scores.size());
  const int64_t expected = Count(scores, 0, class_axis) * Count(scores, class_axis + 1, axes);
  if (Count(input.bottoms[1]) != expected) {
    input.Fail("", "bottom \"" + input.layer.bottom(1) + "\" has " +
                       std::to_string(Count(input.bottoms[1])) + " labels; expected " +
                       std::to_string(expected) + " for bottom \"" + input.layer.bottom(0) +
                       "\", " + ToString(scores));
  }
}

// Bottoms 0 and 1 are of the same samples.
void CheckSamples(const LayerInput& input) {
  const Shape& first = input.bottoms[0];
  const Shape& second = input.bottoms[1];
  if (first.empty() || second.empty() || first[0] != second[0]) {
    input.Fail("bottom.1", "bottom \"" + input.layer.bottom(1) + "\" is " + ToString(second) +
                               "; expected as many samples along axis 0 as " + input.Bottom(0));
  }
}

// Bottoms 0 and 1 have as many values.
void CheckSameCount(const LayerInput& input) {
  CheckSamples(input);
  if (Count(input.bottoms[0]) != Count(input.bottoms[1])) {
    input.Fail("bottom.1", "bottom \"" + input.layer.bottom(1) + "\" is " +
                               ToString(input.bottoms[1]) + "; expected as many values as " +
                               input.Bottom(0));
  }
}

// The loss and, where there is a second top, what belongs to each prediction.
LayerShapes LossAndProbabilities(const LayerInput& input) {
  LayerShapes shapes{{Shape{}}, {}};
  if (input.layer.top_size() == 2) shapes.tops.push_back(input.bottoms[0]);
  return shapes;
}

LayerShapes Loss() { return {{Shape{}}, {}}; }

}  // namespace

LayerShapes InferSoftmaxWithLoss(const LayerInput& input) {
  CheckLabels(input, input.Axis(input.layer.softmax_param().axis(), "softmax_param.axis"));
  CheckSamples(input);
  return LossAndProbabilities(input);
}

LayerShapes InferInfogainLoss(const LayerInput& input) {
  const caffe::InfogainLossParameter& p = input.layer.infogain_loss_param();
  const int axis = input.Axis(p.axis(), "infogain_loss_param.axis");
  CheckLabels(input, axis);
  CheckSamples(input);
  if (input.layer.loss_param().has_normalize()) {
    input.Fail("loss_param.normalize", "this layer type has normalization, not normalize");
  }
  const int64_t classes = input.bottoms[0][axis];
  if (input.bottoms.size() < 3 && p.source().empty()) {
    input.Fail("infogain_loss_param.source",
               "the infogain matrix is missing; give its file as source, or a third bottom");
  }
  if (input.bottoms.size() == 3 && Count(input.bottoms[2]) != classes * classes) {
    input.Fail("bottom.2", "bottom \"" + input.layer.bottom(2) + "\" is " +
                               ToString(input.bottoms[2]) + "; expected a matrix of " +
                               std::to_string(classes) + " x " + std::to_string(classes) +
                               " classes");
  }
  return LossAndProbabilities(input);
}

// Labels of whole samples, for losses on samples x all that comes after.
LayerShapes InferMultinomialLogisticLoss(const LayerInput& input) {
  CheckSamples(input);
  if (Count(input.bottoms[1]) != input.bottoms[0][0]) {
    input.Fail("bottom.1", "bottom \"" + input.layer.bottom(1) + "\" is " +
                               ToString(input.bottoms[1]) + "; expected one label for each of " +
                               std::to_string(input.bottoms[0][0]) + " samples");
  }
  return Loss();
}

LayerShapes InferHingeLoss(const LayerInput& input) { return InferMultinomialLogisticLoss(input); }

LayerShapes InferSigmoidCrossEntropyLoss(const LayerInput& input) {
  CheckSameCount(input);
  return Loss();
}

LayerShapes InferEuclideanLoss(const LayerInput& input) {
  CheckSameCount(input);
  return Loss();
}

// Two feature vectors a sample, and whether they are a pair.
LayerShapes InferContrastiveLoss(const LayerInput& input) {
  CheckSameCount(input);
  for (int i = 0; i < 2; ++i) {
    const Shape& bottom = input.bottoms[i];
    if (bottom.size() > 1 && Count(bottom) != bottom[0] * bottom[1]) {
      input.Fail("bottom." + std::to_string(i), "bottom \"" + input.layer.bottom(i) + "\" is " +
                                                    ToString(bottom) +
                                                    "; expected samples x features");
    }
  }
  const int64_t pairs = input.bottoms[0][0];
  if (Count(input.bottoms[2]) != pairs) {
    input.Fail("bottom.2", "bottom \"" + input.layer.bottom(2) + "\" is " +
                               ToString(input.bottoms[2]) + "; expected one value for each of " +
                               std::to_string(pairs) + " pairs");
  }
  return Loss();
}

LayerShapes InferAccuracy(const LayerInput& input) {
  const caffe::AccuracyParameter& p = input.layer.accuracy_param();
  const int axis = input.Axis(p.axis(), "accuracy_param.axis");
  CheckLabels(input, axis);
  const int64_t classes = input.bottoms[0][axis];
  if (p.top_k() == 0 || p.top_k() > classes) {
    input.Fail("accuracy_param.top_k", "top_k is " + std::to_string(p.top_k()) +
                                           "; expected 1 to the number of classes, " +
                                           std::to_string(classes));
  }
  LayerShapes shapes = Loss();
  if (input.layer.top_size() == 2) shapes.tops.push_back({classes});
  return shapes;
}

}  // namespace poseidon
