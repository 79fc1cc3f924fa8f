#include "cli/planning/plan.h"

#include <glog/logging.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/solver.h"
#include "cli/input/choices.h"
#include "cli/input/deviations.h"
#include "cli/input/flags.h"
#include "cli/output/experiment_progress.h"
#include "cli/output/table.h"
#include "core/steady_now.h"
#include "core/units.h"
#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "planner/model_times.h"
#include "proto/cluster_rates.h"
#include "proto/job_config.h"
#include "proto/replay_model.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

WireCodec ParseCodec(const std::string& name) {
  return Choose<WireCodec>("codec", name,
                           {{"fp32", FP32},
                            {"fp16", FP16},
                            {"bf16", BF16},
                            {"int8", INT8},
                            {"1bit", ONE_BIT},
                            {"topk", TOP_K}});
}

// "4x8", "2x2x2".
std::vector<int> ParseGrid(const std::string& text) {
  std::vector<int> sizes;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('x', begin), text.size());
    int size = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, size);
    if (error != std::errc() || rest != text.data() + end || size < 1) {
      throw ConfigError("--grid is \"" + text +
                        "\"; it must be the sizes of its dimensions: --grid=4x8");
    }
    sizes.push_back(size);
    begin = end + 1;
  }
  return sizes;
}

// Or a plan would be of another exchange than was asked for.
void CheckHasTorus(Communication::Policy policy, const std::string& name) {
  if (policy == Communication::ALL_TORUS || policy == Communication::TIME) return;
  throw ConfigError("--grid is of workers under the torus, which --policy=" + name +
                    " does not use; give --policy=ALL_TORUS or TIME, or leave --grid out");
}

void CheckAtLeastOne(const char* name, const char* what, int64_t value) {
  const std::string flag = std::string("--") + name;
  if (!FlagGiven(name)) throw ConfigError(flag + " is missing; give " + what);
  if (value < 1) {
    throw ConfigError(flag + " is " + std::to_string(value) + "; it must be at least 1");
  }
}

Communication CommunicationFromFlags(const NamedPolicies& policies) {
  const auto found = FindPolicy(policies, FLAGS_policy);
  // Refuses what is no name, with those that are.
  if (!found) Choose<Communication>("policy", FLAGS_policy, policies);
  if (const std::string renamed = RenamingOf(FLAGS_policy, found->first); !renamed.empty()) {
    LOG(WARNING) << "--policy: " << renamed;
  }
  Communication communication = found->second;
  communication.set_codec(ParseCodec(FLAGS_codec));
  if (FlagGiven("lanes")) communication.set_lanes(FLAGS_lanes);
  if (FlagGiven("kv_pair_bytes") || !communication.has_kv_pair_bytes()) {
    communication.set_kv_pair_bytes(FLAGS_kv_pair_bytes);
  }
  communication.set_bucket_bytes(FLAGS_bucket_bytes);
  if (FlagGiven("wait_for_all")) communication.set_wait_for_all(FLAGS_wait_for_all);
  communication.set_local_steps(FLAGS_local_steps);
  communication.set_fragments(FLAGS_fragments);
  communication.set_overlap_steps(FLAGS_overlap_steps);
  if (!FLAGS_grid.empty()) {
    for (const int size : ParseGrid(FLAGS_grid)) communication.add_grid(size);
    CheckHasTorus(communication.policy(), found->first);
  }
  return communication;
}

// "0.9", or "9Gbps" of the network's bandwidth.
double GoodputShare(const std::string& text, const Network& network) {
  double share = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (error == std::errc() && rest == text.data() + text.size()) return share;
  int64_t rate = 0;
  try {
    rate = ParseBitRate(text);
  } catch (const ConfigError& failure) {
    throw ConfigError("--goodput: neither a share such as 0.9 nor a rate: " +
                      std::string(failure.what()));
  }
  const int64_t bandwidth = ParseBitRate(network.bandwidth());
  if (rate > bandwidth) {
    throw ConfigError("--goodput is " + text + ", which is more than the bandwidth, " +
                      network.bandwidth());
  }
  return static_cast<double>(rate) / static_cast<double>(bandwidth);
}

// A second, as the makers' data sheets have them (docs/cost_model.md, "The machines").
struct Gpu {
  double flops;   // of single precision
  double memory;  // bytes read or written
};

Gpu GpuCalled(const std::string& name) {
  return Choose<Gpu>("gpu", name,
                     {{"titanx", {6.1e12, 336e9}},
                      {"p100", {10.6e12, 732e9}},
                      {"v100", {15.7e12, 900e9}},
                      {"a100", {19.5e12, 1555e9}},
                      {"h100", {66.9e12, 3350e9}},
                      {"h200", {66.9e12, 4800e9}}});
}

// With SGD a parameter's update reads three floats and writes two; kernels are to reach 0.8 of a
// memory's bandwidth (tests/bench/gpu_kernels.cc), and reach 0.87 of an H200's.
double DeviceUpdateRate(const Gpu& gpu) { return 0.8 * gpu.memory / 5; }

Cluster ClusterFromFlags() {
  Cluster cluster;
  cluster.set_workers(FLAGS_workers);
  cluster.set_servers(FLAGS_servers);
  if (!FLAGS_gpu.empty()) {
    const Gpu gpu = GpuCalled(FLAGS_gpu);
    // What it really reaches, where somebody has measured that.
    if (!FlagGiven("images_per_second")) cluster.set_flops(gpu.flops);
    cluster.set_device_update_rate(DeviceUpdateRate(gpu));
  }
  if (FlagGiven("flops")) cluster.set_flops(FLAGS_flops);
  if (FlagGiven("cores")) cluster.set_cores(FLAGS_cores);
  if (FlagGiven("update_rate")) cluster.set_update_rate(FLAGS_update_rate);
  if (FlagGiven("reduction_rate")) cluster.set_reduction_rate(FLAGS_reduction_rate);
  Network& network = *cluster.mutable_network();
  network.set_bandwidth(FLAGS_bandwidth);
  if (!FLAGS_goodput.empty()) network.set_goodput_share(GoodputShare(FLAGS_goodput, network));
  network.set_latency(FLAGS_latency);
  network.set_message_cost(FLAGS_message_cost);
  network.set_colocated(FLAGS_colocated);
  for (const Deviation& deviation : ParseDeviations(FLAGS_deviations)) {
    *cluster.add_deviation() = deviation;
  }
  return cluster;
}

// As a job config is checked, but what is wrong is a flag.
void Check(const Job& job) {
  try {
    CheckClusterAndCommunication(job);
  } catch (const ConfigError& error) {
    // Flags are called as the fields, but for the first ones.
    const std::pair<std::string, std::string> names[] = {
        {"cluster.network.goodput_share", "--goodput"},
        {"cluster.devices_per_worker", "--gpus_per_node"},
        {"cluster.device_bandwidth", "--gpu_bandwidth"},
        {"recovery.mode", "--recovery"},
        {"cluster.deviation.", "--deviations, entry "},
        {"cluster.network.", "--"},
        {"cluster.", "--"},
        {"communication.", "--"}};
    std::string message = error.what();
    for (const auto& [field, flag] : names) {
      for (size_t at = 0; (at = message.find(field, at)) != std::string::npos;) {
        message.replace(at, field.size(), flag);
      }
    }
    throw ConfigError(message);
  }
}

}  // namespace

ModelAndJob LoadModelAndJob(const PlanOptions& options) {
  Check(options.job);
  LoadedModel loaded = LoadModel(options.source);
  Job job = options.job;
  // A device that trains so many samples rebuilds gradients at that rate, too.
  if (loaded.flops && !job.cluster().has_flops()) job.mutable_cluster()->set_flops(*loaded.flops);
  if (loaded.disturbance && !job.cluster().has_disturbance()) {
    *job.mutable_cluster()->mutable_disturbance() = *loaded.disturbance;
  }
  return {std::move(loaded.model), std::move(job), std::move(loaded.inputs)};
}

PlannedModel PlanModel(const PlanOptions& options, const JobPlanTrial& trial) {
  auto [model, job, inputs] = LoadModelAndJob(options);
  WithTimes(model, job.cluster().flops());  // refuses layers that take too long to predict
  const InformationBook book(model, job.cluster());
  SearchReport search;
  Plan plan =
      PlanJob(book, job, trial, {}, [&search](const SearchReport& one) { search.Add(one); });
  const ClusterModel cluster = ClusterOf(job);
  Limits limits = WhatLimits(plan, book, cluster);
  return {std::move(model),
          std::move(plan),
          std::move(inputs),
          std::move(limits),
          cluster.SlowestComputeFactor(),
          std::move(search),
          book.colocated()};
}

JobPlanTrial PlanningReport::Trial() {
  return [this](const Plan& plan, const Job& job, const ModelSpec& model, TrialLength length) {
    const std::optional<double> seconds = TryPlan(plan, job, model, length);
    // What is too large for a long trial has been tried, and reported, in a short one.
    if (seconds || length == TrialLength::kShort) On(plan, seconds, SteadyNow());
    return seconds;
  };
}

void PlanningReport::On(const Plan& plan, std::optional<double> seconds, Time now) {
  const std::lock_guard lock(mutex_);
  if (now < next_) return;
  next_ = now + kInterval;
  const std::string lanes =
      std::to_string(plan.lanes()) + (plan.lanes() == 1 ? " data lane" : " data lanes");
  if (seconds) {
    out_ << "planning: with " << lanes << " an iteration takes "
         << Digits(kMillisecondsPerSecond * *seconds, 1) << " ms, tried in virtual time";
  } else {
    out_ << "planning: for " << lanes << " a plan is found, which is too large to be tried";
  }
  out_ << "; " << RoughTime(now - start_) << " so far" << std::endl;
}

PlanOptions PlanOptionsFromFlags(const NamedPolicies& policies) {
  if (!FLAGS_net.empty() + !FLAGS_solver.empty() + !FLAGS_profile.empty() != 1) {
    throw ConfigError(
        "give either --net, a Caffe net prototxt, or --solver, a Caffe solver prototxt, or "
        "--profile, what `poseidon time` has measured");
  }
  for (const char* flag : {"batch", "input", "images_per_second"}) {
    if (!FLAGS_profile.empty() && FlagGiven(flag)) {
      throw ConfigError(std::string("--") + flag + " can't change a profile; measure it again");
    }
  }
  CheckAtLeastOne("workers", "the number of workers", FLAGS_workers);
  CheckAtLeastOne("servers", "the number of parameter servers", FLAGS_servers);
  if (FlagGiven("batch")) CheckAtLeastOne("batch", "the samples of a worker", FLAGS_batch);
  PlanOptions options;
  options.source.net = FLAGS_net;
  options.source.solver = FLAGS_solver;
  options.source.profile = FLAGS_profile;
  if (FlagGiven("batch")) options.source.batch = FLAGS_batch;
  if (FlagGiven("input")) options.source.record_shape = ParseShape("--input", FLAGS_input);
  *options.job.mutable_cluster() = ClusterFromFlags();
  if (!FLAGS_gpu.empty()) options.job.mutable_training()->set_device(Training::CUDA);
  *options.job.mutable_communication() = CommunicationFromFlags(policies);
  if (FlagGiven("images_per_second")) {
    CheckImageRate("--images_per_second", FLAGS_images_per_second);
    options.source.images_per_second = FLAGS_images_per_second;
  }
  return options;
}

bool JsonFromFlags() {
  if (FLAGS_format != "table" && FLAGS_format != "json") {
    throw ConfigError("--format is \"" + FLAGS_format + "\"; it must be table or json");
  }
  return FLAGS_format == "json";
}

ExitCode PlanVerb() {
  const bool json = JsonFromFlags();
  PlanningReport report(std::cerr, SteadyNow());
  const PlannedModel planned = PlanModel(PlanOptionsFromFlags(PlannedPolicies()), report.Trial());
  std::cout << (json ? PlanJson(planned) : PlanTable(planned));
  return ExitCode::kSuccess;
}

}  // namespace poseidon
