#include "tests/simulation/planned_training.h"

#include <glog/logging.h>

#include "experiments/simulated_cluster.h"
#include "scheduler/cluster_spec.h"
#include "tests/unit/reference_models.h"

namespace poseidon {
namespace {

PlannedNet Timed(const char* name, ModelSpec model) {
  const std::vector<LayerTime> times = LayerTimes(model, 4e12);
  for (int l = 0; l < model.layers_size(); ++l) {
    model.mutable_layers(l)->set_forward_ms(1000 * times[l].forward);
    model.mutable_layers(l)->set_backward_ms(1000 * times[l].backward);
  }
  model.mutable_update_rule()->set_type("SGD");
  model.mutable_update_rule()->set_base_lr(0.1F);
  model.mutable_update_rule()->set_lr_policy("fixed");
  return {name, std::move(model)};
}

}  // namespace

std::vector<PlannedNet> PlannedNets() {
  return {Timed("VGG19", Vgg19(32)), Timed("GoogLeNet", GoogLeNet(32)),
          Timed("ResNet-50", ResNet50(32))};
}

Job PlannedJob(int workers, int servers, const char* bandwidth, const char* latency,
               bool colocated) {
  Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_servers(servers);
  // The simulator's nodes compute nothing besides the layers.
  job.mutable_cluster()->set_flops(1e30);
  job.mutable_cluster()->set_reduction_rate(1e30);
  job.mutable_cluster()->set_update_rate(1e30);
  Network& network = *job.mutable_cluster()->mutable_network();
  network.set_bandwidth(bandwidth);
  network.set_goodput_share(1);
  network.set_latency(latency);
  network.set_colocated(colocated);
  job.mutable_communication()->set_heartbeat_interval_seconds(3600);
  job.mutable_communication()->set_heartbeat_deadline_seconds(1e6);
  job.mutable_communication()->set_stall_deadline_seconds(1e6);
  return job;
}

PlannedOutcome TrainAsPlanned(const Job& job, const ModelSpec& model) {
  // Workers that exchange in pairs drift apart for some twenty iterations; others are steady soon.
  const auto policy = job.communication().policy();
  const bool pairs = policy == Communication::ALL_HALVING_DOUBLING ||
                     policy == Communication::ALL_TORUS || policy == Communication::TIME;
  const int iterations = pairs ? 24 : 8;
  constexpr int kMeasured = 4;
  const ClusterSpec spec = ClusterOf(job);
  NicSpec nic;
  nic.goodput_bytes_per_second = spec.goodput;
  nic.latency = Seconds(spec.latency);
  nic.send_buffer_bytes = spec.send_buffer_bytes;
  SimulatedClusterOptions options;
  options.job = job;
  options.layout = spec.colocated ? ColocatedLayout(job, nic) : SeparateLayout(job, nic);
  options.network.processing = MessageProcessing(Seconds(spec.message_cost));
  options.work.model = model;
  options.work.iterations = iterations;
  for (int l = 0; l < model.layers_size(); ++l) {
    options.work.timeline.steps.push_back({l, Seconds(model.layers(l).forward_ms() / 1000),
                                           Seconds(model.layers(l).backward_ms() / 1000)});
  }
  SimulatedCluster cluster(options);
  CHECK(cluster.Run(Time::max())) << "a simulated training did not end";
  PlannedOutcome outcome;
  outcome.predicted = cluster.scheduler().plan->plan().iteration_ms() / 1000;
  for (int rank = 0; rank < job.cluster().workers(); ++rank) {
    const auto& times = cluster.trainer(rank).iterations;
    outcome.simulated +=
        ToSeconds(times[iterations - 1].end - times[iterations - 1 - kMeasured].end) / kMeasured /
        job.cluster().workers();
  }
  return outcome;
}

}  // namespace poseidon
