#include "scheduler/cluster_spec.h"

#include <algorithm>

#include "core/time.h"
#include "core/units.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

bool TimesAreKnown(const ModelSpec& model) {
  return std::any_of(model.layers().begin(), model.layers().end(), [](const LayerSpec& layer) {
    return layer.forward_ms() > 0 || layer.backward_ms() > 0;
  });
}

bool OperationsAreKnown(const ModelSpec& model) {
  return std::any_of(model.layers().begin(), model.layers().end(),
                     [](const LayerSpec& layer) { return layer.multiply_adds() > 0; });
}

}  // namespace

int ClusterSpec::machines() const {
  return colocated ? std::max(workers, servers) : workers + servers;
}

ClusterSpec ClusterOf(const Job& job) {
  constexpr double kBitsPerByte = 8;
  const Network& network = job.cluster().network();
  ClusterSpec cluster;
  cluster.workers = job.cluster().workers();
  cluster.servers = job.cluster().servers();
  cluster.colocated = network.colocated();
  cluster.goodput = static_cast<double>(ParseBitRate(network.bandwidth())) / kBitsPerByte *
                    network.goodput_share();
  cluster.latency = ToSeconds(ParseDuration(network.latency()));
  cluster.flops = job.cluster().flops();
  return cluster;
}

std::vector<LayerTime> LayerTimes(const ModelSpec& model, double flops) {
  constexpr double kMillisecond = 1e-3;
  constexpr double kOperations = 2;      // a multiplication and an addition
  constexpr double kBackwardFactor = 2;  // of the forward pass
  const bool timed = TimesAreKnown(model);
  const bool counted = OperationsAreKnown(model);
  std::vector<LayerTime> times;
  for (const LayerSpec& layer : model.layers()) {
    if (timed) {
      times.push_back({layer.forward_ms() * kMillisecond, layer.backward_ms() * kMillisecond});
      continue;
    }
    const int64_t multiply_adds = counted ? layer.multiply_adds() : FloatCount(layer);
    const double forward = kOperations * static_cast<double>(multiply_adds) *
                           static_cast<double>(std::max<int64_t>(model.batch(), 1)) / flops;
    times.push_back({forward, kBackwardFactor * forward});
  }
  return times;
}

}  // namespace poseidon
