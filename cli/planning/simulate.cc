#include "cli/planning/simulate.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/input/choices.h"
#include "cli/input/flags.h"
#include "cli/output/experiment_progress.h"
#include "cli/output/table.h"
#include "client/pace/compute_disturbance.h"
#include "core/steady_now.h"
#include "core/time.h"
#include "core/units.h"
#include "planner/lane_choice.h"
#include "planner/model_times.h"
#include "proto/bucket.h"
#include "simulation/plan_trial.h"

namespace poseidon {
namespace {

constexpr int kIterations = 5;  // if the command line does not say: two to get steady, three count
constexpr int kUncounted = 2;

void SetDevicesFromFlags(Cluster& cluster) {
  if (FlagGiven("gpu_bandwidth") && FLAGS_gpus_per_node == 1) {
    throw ConfigError(
        "--gpu_bandwidth is what joins a worker's GPUs, of which it has one; give --gpus_per_node "
        "above 1, or leave --gpu_bandwidth out");
  }
  cluster.set_devices_per_worker(FLAGS_gpus_per_node);
  cluster.set_device_bandwidth(FLAGS_gpu_bandwidth);
  if (!FLAGS_copy_bandwidth.empty()) cluster.set_copy_bandwidth(FLAGS_copy_bandwidth);
}

// Not given: what the profile says, else what was measured.
void SetDisturbanceFromFlag(Cluster& cluster) {
  if (FLAGS_disturbance.empty()) return;
  *cluster.mutable_disturbance() = Choose<Disturbance>(
      "disturbance", FLAGS_disturbance, {{"none", {}}, {"measured", MeasuredDisturbance()}});
}

// Where an iteration is a number of local steps, all times and bytes are of a step.
std::string LocalStepsLine(const Communication& communication) {
  if (communication.local_steps() == 1) return "";
  return "an iteration is a step, of which there are " +
         std::to_string(communication.local_steps()) +
         " from one exchange of a layer to the next, in fragments: " +
         std::to_string(communication.fragments()) +
         ", overlap: " + std::to_string(communication.overlap_steps()) + " steps\n";
}

// What machines vary by, and how long an iteration would be if they did not.
std::string DisturbanceLine(const ClusterAnswer& answer) {
  const Disturbance& disturbance = answer.job.cluster().disturbance();
  const double predicted =
      ExpectedIterationMs(answer.training.plan) / answer.job.communication().local_steps();
  return "disturbance of machines: " + DisturbanceText(disturbance) + "; without any the plan " +
         (answer.limits.seconds_estimated ? "estimates " : "predicts ") + Digits(predicted, 2) +
         " ms\n";
}

// The fields of the job config's, with the cost in milliseconds.
nlohmann::ordered_json DisturbanceJson(const Disturbance& disturbance) {
  return {{"iteration_spread", disturbance.iteration_spread()},
          {"layer_spread", disturbance.layer_spread()},
          {"stall_interval_seconds", disturbance.stall_interval_seconds()},
          {"stall_seconds", disturbance.stall_seconds()},
          {"layer_cost_ms",
           kMillisecondsPerSecond * ToSeconds(ParseDuration(disturbance.layer_cost()))},
          {"seed", disturbance.seed()}};
}

}  // namespace

double ClusterAnswer::ImagesPerSecond() const {
  return static_cast<double>(workers * batch) / training.iteration;
}

ImageRates ClusterAnswer::RatesWithoutFailures() const {
  return {ImagesPerSecond(), static_cast<double>(workers * batch) / failures->restarts.iteration};
}

double ClusterAnswer::Speedup() const { return Gpus() * Efficiency(); }

double ClusterAnswer::Efficiency() const { return training.compute / training.iteration; }

ClusterAnswer SimulateModel(const PlanOptions& options, int iterations,
                            const SimulationControl& control,
                            const std::optional<FailureQuestion>& failures) {
  if (iterations <= kUncounted) {
    throw ConfigError("--iterations is " + std::to_string(iterations) +
                      "; it must be at least 3, for the first two do not count");
  }
  PlanOptions recovering = options;
  if (failures) SetRecovery(*failures, recovering.job);
  auto [one, job, inputs] = LoadModelAndJob(recovering);
  if (failures) {
    CheckCanRecover(job);  // before simulations that can take minutes
    // The net's own warnings have been said by now, and that simulated nodes are lost is no news.
    FLAGS_minloglevel = std::max<int>(FLAGS_minloglevel, google::GLOG_ERROR);
  }
  DisturbUnlessSaid(*job.mutable_cluster());
  const Cluster& cluster = job.cluster();
  const ModelSpec model =
      WithBatches(WithTimes(one, cluster.flops()), cluster.devices_per_worker());
  const SteadyIterations steady = {.warm_up = WarmUpIterations(job),
                                   .measured = iterations - kUncounted};
  ClusterAnswer answer;
  answer.workers = cluster.workers();
  answer.servers = cluster.servers();
  answer.gpus_per_node = cluster.devices_per_worker();
  answer.batch = model.batch();
  answer.inputs = inputs;
  answer.training = SimulateTraining(job, model, steady, {}, control);
  answer.limits =
      OfAStep(WhatLimits(answer.training.plan, InformationBook(model, cluster), ClusterOf(job)),
              job.communication().local_steps());
  answer.job = job;
  if (failures) {
    SimulatedTraining restarting = answer.training;
    if (failures->choice.mode != Recovery::NONE) {
      Job without = job;
      without.mutable_recovery()->set_mode(Recovery::NONE);
      restarting = SimulateTraining(without, model, steady, {}, control);
    }
    answer.failures = AnswerFailures(job, model, failures->scenario, failures->choice,
                                     failures->snapshot_seconds, restarting, control);
  }
  return answer;
}

void SimulationReport::On(const SimulationProgress& progress, Time now) {
  if (progress.share == 0) training_ = now;
  if (now < next_) return;
  next_ = now + kInterval;
  if (progress.share == 0) {
    out_ << "simulating: processes join and the scheduler plans; " << Grouped(progress.messages)
         << " messages so far" << std::endl;
    return;
  }
  const double left = ToSeconds(now - training_) * (1 - progress.share) / progress.share;
  out_ << "simulated " << Digits(100 * progress.share, 1) << "%, " << Grouped(progress.messages)
       << " messages in " << RoughTime(now - start_) << "; about " << RoughTime(Seconds(left))
       << " left" << std::endl;
}

std::string SimulationTable(const ClusterAnswer& answer) {
  const SimulatedTraining& training = answer.training;
  constexpr double kBytesPerMegabyte = 1e6;
  Table table({{"quantity"}, {"value", Table::Align::kRight}, {"unit"}});
  table.AddRow({"iteration", Digits(kMillisecondsPerSecond * training.iteration, 2), "ms"});
  table.AddRow({"computing alone", Digits(kMillisecondsPerSecond * training.compute, 2), "ms"});
  table.AddRow({"throughput", Digits(answer.ImagesPerSecond(), 1), "images/s"});
  table.AddRow({"speedup", Digits(answer.Speedup(), 2),
                "of " + std::to_string(answer.Gpus()) + ", by computing alone"});
  table.AddRow({"efficiency", Digits(100 * answer.Efficiency(), 1), "%"});
  table.AddRow({"GPU busy", Digits(100 * training.busy, 1), "%"});
  table.AddRow({"sent, most loaded machine", Digits(training.bytes_sent / kBytesPerMegabyte, 3),
                "MB/iteration"});
  table.AddRow({"received, the same machine",
                Digits(training.bytes_received / kBytesPerMegabyte, 3), "MB/iteration"});
  return table.ToString() + "\nworkers: " + std::to_string(answer.workers) +
         ", servers: " + std::to_string(answer.servers) +
         ", samples a worker: " + std::to_string(answer.batch) + "\n" +
         LocalStepsLine(answer.job.communication()) + SampleInputLines(answer.inputs) +
         LanesText(training.plan) + "\n" + DisturbanceLine(answer) + LimitsText(answer.limits) +
         (answer.failures ? FailureText(*answer.failures, answer.job, answer.RatesWithoutFailures())
                          : "");
}

std::string SimulationJson(const ClusterAnswer& answer) {
  const SimulatedTraining& training = answer.training;
  const int steps = answer.job.communication().local_steps();
  nlohmann::ordered_json json = {
      {"workers", answer.workers},
      {"servers", answer.servers},
      {"gpus_per_node", answer.gpus_per_node},
      {"batch", answer.batch},
      {"inputs", SampleInputsJson(answer.inputs)},
      {"compute_ms", kMillisecondsPerSecond * training.compute},
      {"iteration_ms", kMillisecondsPerSecond * training.iteration},
      {"predicted_ms", ExpectedIterationMs(training.plan) / steps},
      {"estimated", answer.limits.seconds_estimated},
      {"disturbance", DisturbanceJson(answer.job.cluster().disturbance())},
      {"local_steps", steps},
      {"images_per_second", answer.ImagesPerSecond()},
      {"speedup", answer.Speedup()},
      {"efficiency", answer.Efficiency()},
      {"gpu_busy", training.busy},
      {"bytes_per_node",
       {{"sent", std::llround(training.bytes_sent)},
        {"received", std::llround(training.bytes_received)}}},
      {"lanes", LanesJson(training.plan, steps)},
      {"limits", LimitsJson(answer.limits)}};
  if (answer.failures) {
    json["failures"] = FailureJson(*answer.failures, answer.job, answer.RatesWithoutFailures());
  }
  return json.dump(2) + "\n";
}

ExitCode SimulateVerb() {
  const bool json = JsonFromFlags();
  const int iterations = FlagGiven("iterations") ? FLAGS_iterations : kIterations;
  PlanOptions options = PlanOptionsFromFlags(SimulatedPolicies());
  SetDevicesFromFlags(*options.job.mutable_cluster());
  SetDisturbanceFromFlag(*options.job.mutable_cluster());
  const std::optional<FailureQuestion> failures = FailureQuestionFromFlags();
  SimulationReport report(std::cerr, SteadyNow());
  SimulationControl control;
  PlanningReport planning(std::cerr, SteadyNow());
  control.planner = [&planning](const InformationBook& book, const Job& job) {
    return PlanJob(book, job, planning.Trial());
  };
  control.progress = [&report](const SimulationProgress& progress) {
    report.On(progress, SteadyNow());
  };
  const ClusterAnswer answer = SimulateModel(options, iterations, control, failures);
  std::cout << (json ? SimulationJson(answer) : SimulationTable(answer));
  return ExitCode::kSuccess;
}

}  // namespace poseidon
