#include "tests/simulation/predictions/planned_training.h"

#include <algorithm>
#include <string>

#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "planner/predictor.h"
#include "proto/bucket.h"
#include "simulation/plan_trial.h"
#include "simulation/training_simulation.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

PlannedNet Timed(const char* name, ModelSpec model) {
  const std::vector<LayerTime> times = ComputeTimes(model, 4e12);
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
  job.mutable_communication()->set_lanes(1);  // all plans alike
  return job;
}

ModelSpec Layers(int count, int64_t floats, double forward_ms, double backward_ms) {
  ModelSpec model;
  for (int i = 0; i < count; ++i) {
    LayerSpec& layer = *model.add_layers();
    layer.set_name("layer" + std::to_string(i));
    layer.add_blobs()->add_shape(floats);
    layer.set_forward_ms(forward_ms);
    layer.set_backward_ms(backward_ms);
  }
  model.set_batch(32);
  return model;
}

Job FreeLanesJob(int workers, int servers, Communication::Policy policy) {
  Job job = PlannedJob(workers, servers, "10Gbps", "10us", true);
  job.mutable_cluster()->mutable_network()->set_message_cost("0us");
  job.mutable_communication()->set_policy(policy);
  return job;
}

PlannedOutcome TrainAsPlanned(const Job& job, const ModelSpec& model, bool tried) {
  SteadyIterations steady;
  // Two more, for the comparison is to the thousandth.
  steady.warm_up = WarmUpIterations(job) + 2;
  steady.measured = 4;
  SimulationControl control;
  if (tried) control.planner = PlanByTrial;
  const SimulatedTraining training = SimulateTraining(job, model, steady, {}, control);
  const int steps = std::max(1, training.plan.local_steps());
  const InformationBook book(model, job.cluster());
  const double least = Predictor(book, ClusterOf(job)).LeastSeconds(training.plan);
  return {ExpectedIterationMs(training.plan) / 1000 / steps, training.iteration, least};
}

}  // namespace poseidon
