#include "client/deferred/deferred_update.h"

#include <glog/logging.h>

#include <cmath>

#include "proto/bucket.h"
#include "proto/model_size.h"
#include "proto/update_rule_message.h"

namespace poseidon {

DeferredUpdate::DeferredUpdate(const ModelSpec& model, const Options& options)
    : model_(model),
      options_(options),
      stride_(static_cast<size_t>(OptimizerStatePerParameter(ToUpdateRule(model.update_rule())))) {
  CHECK(model.update_rule().deferred());
}

double DeferredUpdate::SquaredNormOfLayer(int layer, std::span<const float> state) const {
  double sum = 0;
  for (const BlobSpec& blob : model_.layers(layer).blobs()) {
    const size_t size = static_cast<size_t>(FloatCount(blob)) * stride_;
    if (MultipliersOf(blob).lr != 0) sum += SquaredNorm(state.first(size));
    state = state.subspan(size);
  }
  return sum;
}

double DeferredUpdate::SquaredNorm(std::span<const float> state) const {
  double sum = 0;
  for (size_t i = stride_ - 1; i < state.size(); i += stride_) {
    sum += static_cast<double>(state[i]) * state[i];
  }
  return sum;
}

void DeferredUpdate::Begin(int64_t passes,
                           const std::function<std::span<const float>(int layer)>& state) {
  gradient_scale_ = 1;
  if (!options_.clip_gradients) return;
  double squares = 0;
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    squares += SquaredNormOfLayer(layer, state(layer));
  }
  const double norm = std::sqrt(squares) * static_cast<double>(passes);
  if (norm > *options_.clip_gradients) {
    gradient_scale_ = static_cast<float>(*options_.clip_gradients / norm);
  }
}

float DeferredUpdate::LearningRateScale(const UpdateRule& rule, const BlobSpec& blob,
                                        std::span<const float> values,
                                        std::span<const float> state) const {
  if (!options_.lars || blob.shape_size() < 2 || blob.decay_mult() == 0) return 1;
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  const double parameters = std::sqrt(squares);
  const double gradient = std::sqrt(SquaredNorm(state)) * gradient_scale_;
  // Neither says how far to go: at the start, or where nothing has reached the blob.
  if (parameters == 0 || gradient == 0) return 1;
  const double decay = static_cast<double>(rule.weight_decay) * MultipliersOf(blob).decay;
  return static_cast<float>(options_.lars->trust_coefficient() * parameters /
                            (gradient + decay * parameters + options_.lars->epsilon()));
}

void DeferredUpdate::Apply(const UpdateRule& rule, int layer, int64_t iteration,
                           std::span<float> values, std::span<float> state) const {
  for (const BlobSpec& blob : model_.layers(layer).blobs()) {
    const auto size = static_cast<size_t>(FloatCount(blob));
    const std::span<float> blob_values = values.first(size);
    const std::span<float> blob_state = state.first(size * stride_);
    UpdateDeferred({rule, iteration, MultipliersOf(blob), gradient_scale_,
                    LearningRateScale(rule, blob, blob_values, blob_state)},
                   blob_values, blob_state);
    values = values.subspan(size);
    state = state.subspan(size * stride_);
  }
}

}  // namespace poseidon
