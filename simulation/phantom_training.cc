#include "simulation/phantom_training.h"

#include <vector>

#include "planner/cost/cluster_model.h"

namespace poseidon {
namespace {

ModelSpec WithUpdateRule(ModelSpec model) {
  if (!model.update_rule().lr_policy().empty()) return model;
  model.mutable_update_rule()->set_type("SGD");
  model.mutable_update_rule()->set_lr_policy("fixed");
  model.mutable_update_rule()->set_base_lr(1);
  return model;
}

}  // namespace

ComputeTimeline TimelineOf(const Job& job, const ModelSpec& model) {
  // A worker's devices compute side by side, each a part of its batch.
  const std::vector<LayerTime> times =
      ComputeTimes(model, job.cluster().flops() * job.cluster().devices_per_worker());
  ComputeTimeline timeline;
  for (int l = 0; l < model.layers_size(); ++l) {
    timeline.steps.push_back({l, Seconds(times[l].forward), Seconds(times[l].backward)});
  }
  return timeline;
}

SimulatedClusterOptions PhantomTraining(const Job& job, const ModelSpec& model,
                                        int64_t iterations) {
  const ClusterModel spec = ClusterOf(job);
  NicSpec nic;
  nic.goodput_bytes_per_second = spec.goodput;
  nic.latency = Seconds(spec.latency);
  nic.send_buffer_bytes = spec.send_buffer_bytes;
  SimulatedClusterOptions options;
  options.job = job;
  options.layout = spec.colocated ? ColocatedLayout(job, nic) : SeparateLayout(job, nic);
  for (const Deviation& deviation : job.cluster().deviation()) {
    Deviate(deviation, job.cluster().network(), options.layout);
  }
  options.work.model = WithUpdateRule(model);
  options.work.iterations = iterations;
  options.work.timeline = TimelineOf(job, model);
  return options;
}

}  // namespace poseidon
