#include "planner/cost/cluster_model.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/time.h"
#include "core/units.h"
#include "proto/model_size.h"
#include "transport/zmq/zmq_options.h"

namespace poseidon {
namespace {

bool OperationsAreKnown(const ModelSpec& model) {
  return std::any_of(model.layers().begin(), model.layers().end(),
                     [](const LayerSpec& layer) { return layer.multiply_adds() > 0; });
}

double BytesPerSecond(const std::string& bit_rate) {
  constexpr double kBitsPerByte = 8;
  return static_cast<double>(ParseBitRate(bit_rate)) / kBitsPerByte;
}

void AddDeviations(const Cluster& described, ClusterModel& cluster) {
  const double bandwidth = BytesPerSecond(described.network().bandwidth());
  for (const Deviation& deviation : described.deviation()) {
    MachineDeviation& machine = cluster.deviations[deviation.worker()];
    machine.compute_factor = deviation.compute_factor();
    if (!deviation.has_bandwidth()) continue;
    machine.link_share = BytesPerSecond(deviation.bandwidth()) / bandwidth;
  }
}

// Instead of some workers that compute for longer than others, all for as long as their speeds
// together make it.
void Balance(ClusterModel& cluster) {
  double speeds = cluster.workers - static_cast<double>(cluster.deviations.size());
  for (auto& [worker, deviation] : cluster.deviations) {
    speeds += 1 / std::exchange(deviation.compute_factor, 1);
  }
  cluster.compute_factor = cluster.workers / speeds;
}

// The deviations' extreme value, which is that of the usual machine where one is left.
template <typename ValueOf, typename Better>
double Extreme(const ClusterModel& cluster, int machines, ValueOf value_of, Better better) {
  const bool all_deviate = static_cast<int>(cluster.deviations.size()) >= machines;
  double found = all_deviate ? value_of(cluster.deviations.begin()->second) : 1;
  for (const auto& [worker, deviation] : cluster.deviations) {
    if (better(value_of(deviation), found)) found = value_of(deviation);
  }
  return found;
}

}  // namespace

int ClusterModel::machines() const {
  return colocated ? std::max(workers, servers) : workers + servers;
}

double ClusterModel::GoodputOf(int machine) const {
  const auto found = deviations.find(machine);
  return found == deviations.end() ? goodput : goodput * found->second.link_share;
}

double ClusterModel::LeastGoodput() const {
  const auto share = [](const MachineDeviation& deviation) { return deviation.link_share; };
  return goodput * Extreme(*this, machines(), share, std::less<>());
}

double ClusterModel::ComputeFactorOf(int worker) const {
  const auto found = deviations.find(worker);
  return found == deviations.end() ? compute_factor : compute_factor * found->second.compute_factor;
}

double ClusterModel::SlowestComputeFactor() const {
  const auto factor = [](const MachineDeviation& deviation) { return deviation.compute_factor; };
  return compute_factor * Extreme(*this, workers, factor, std::greater<>());
}

ClusterModel ClusterOf(const Job& job) {
  const Network& network = job.cluster().network();
  ClusterModel cluster;
  cluster.workers = job.cluster().workers();
  cluster.servers = job.cluster().servers();
  cluster.colocated = network.colocated();
  cluster.goodput = BytesPerSecond(network.bandwidth()) * network.goodput_share();
  cluster.latency = ToSeconds(ParseDuration(network.latency()));
  cluster.message_cost = ToSeconds(ParseDuration(network.message_cost()));
  const Communication& communication = job.communication();
  const bool by_network = job.cluster().has_network() && !communication.has_window_bytes();
  const int64_t window = by_network ? WindowBytes(cluster) : communication.window_bytes();
  cluster.send_buffer_bytes = window + ZmqOptions().unsent_bytes;
  cluster.flops = job.cluster().flops();
  cluster.reduction_rate = job.cluster().reduction_rate();
  cluster.update_rate = job.cluster().update_rate();
  cluster.devices = job.cluster().devices_per_worker();
  cluster.device_rate = BytesPerSecond(job.cluster().device_bandwidth());
  if (job.cluster().has_copy_bandwidth()) {
    cluster.copy_rate = BytesPerSecond(job.cluster().copy_bandwidth());
  }
  const bool gpus = job.training().device() == Training::CUDA;
  const bool recovers = job.recovery().mode() != Recovery::NONE;
  cluster.devices_update = gpus && !recovers;
  cluster.host_rebuilds = gpus && recovers;
  cluster.device_update_rate = job.cluster().device_update_rate();
  AddDeviations(job.cluster(), cluster);
  if (job.training().batch() == Training::BALANCED) Balance(cluster);
  return cluster;
}

std::vector<ClusterModel> FartherClusters(const Job& job) {
  const Network& network = job.cluster().network();
  std::vector<ClusterModel> farther;
  ClusterModel cluster = ClusterOf(job);
  int64_t below = 1;  // machines that share an uplink of the tier
  for (const Tier& tier : network.tier()) {
    below *= tier.members();
    if (below >= cluster.machines()) break;  // one group has all, and nobody goes beyond it
    const double share =
        BytesPerSecond(tier.bandwidth()) * network.goodput_share() / static_cast<double>(below);
    const double latency = 2 * ToSeconds(ParseDuration(tier.latency()));
    if (share >= cluster.goodput && latency == 0) continue;
    const double before = std::exchange(cluster.goodput, std::min(cluster.goodput, share));
    for (auto& [worker, deviation] : cluster.deviations) {
      const double own = deviation.link_share * before;
      deviation.link_share = std::min(own, share) / cluster.goodput;
    }
    cluster.latency += latency;
    farther.push_back(cluster);
  }
  return farther;
}

int64_t WindowBytes(const ClusterModel& cluster) {
  constexpr int64_t kLeast = 256 << 10;
  constexpr double kRoundTrips = 2;
  const double in_flight = cluster.goodput * 2 * cluster.latency;
  return std::max(kLeast, static_cast<int64_t>(kRoundTrips * in_flight));
}

bool TimesAreKnown(const ModelSpec& model) {
  return std::any_of(model.layers().begin(), model.layers().end(), [](const LayerSpec& layer) {
    return layer.forward_ms() > 0 || layer.backward_ms() > 0;
  });
}

std::vector<LayerTime> ComputeTimes(const ModelSpec& model, double flops) {
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
