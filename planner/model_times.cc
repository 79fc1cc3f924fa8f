#include "planner/model_times.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "planner/cost/cluster_model.h"

namespace poseidon {
namespace {

constexpr double kMaxSeconds = 3600;  // as of a profile's layer (proto/replay_model.cc)

ModelSpec Scaled(ModelSpec model, const std::vector<LayerTime>& times, double factor) {
  for (int l = 0; l < model.layers_size(); ++l) {
    LayerSpec& layer = *model.mutable_layers(l);
    // In this form a NaN is refused, too.
    if (!(factor * std::max(times[l].forward, times[l].backward) <= kMaxSeconds)) {
      throw ConfigError("layer \"" + layer.name() +
                        "\" takes longer than an hour; check flops and images_per_second");
    }
    layer.set_forward_ms(kMillisecondsPerSecond * factor * times[l].forward);
    layer.set_backward_ms(kMillisecondsPerSecond * factor * times[l].backward);
  }
  return model;
}

}  // namespace

ModelSpec WithTimes(ModelSpec model, double flops) {
  const std::vector<LayerTime> times = ComputeTimes(model, flops);
  return Scaled(std::move(model), times, 1);
}

double OperationsPerSample(const ModelSpec& model) {
  double operations = 0;
  for (const LayerTime& layer : ComputeTimes(model, 1))
    operations += layer.forward + layer.backward;
  return operations / static_cast<double>(std::max<int64_t>(model.batch(), 1));
}

ModelSpec WithImagesPerSecond(ModelSpec model, double images_per_second) {
  const std::vector<LayerTime> times = ComputeTimes(model, 1);
  const double factor = 1 / (images_per_second * OperationsPerSample(model));
  return Scaled(std::move(model), times, factor);
}

ModelSpec WithBatches(ModelSpec model, int batches) {
  model.set_batch(model.batch() * batches);
  for (LayerSpec& layer : *model.mutable_layers()) {
    if (!layer.has_inner_product()) continue;
    InnerProductSpec& product = *layer.mutable_inner_product();
    product.set_rows(product.rows() * batches);
  }
  return model;
}

}  // namespace poseidon
