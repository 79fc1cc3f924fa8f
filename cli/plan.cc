#include "cli/plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

#include "caffe_adapter/net.h"
#include "caffe_adapter/solver.h"
#include "cli/flags.h"
#include "proto/job_config.h"
#include "proto/replay_model.h"
#include "proto/text_format.h"
#include "scheduler/cluster_spec.h"
#include "scheduler/information_book.h"
#include "scheduler/job_plan.h"

namespace poseidon {
namespace {

// What is planned: a net, and the solver's part of what a worker declares.
struct Source {
  SolverNet net;
  caffe::SolverParameter solver;
};

Source ReadSource(const PlanOptions& options) {
  if (!options.solver.empty()) {
    Solver solver = LoadSolver(options.solver);
    return {std::move(solver.train), std::move(solver.parameter)};
  }
  Source source;
  const TextLocations locations = ReadTextFile(options.net, source.net.net);
  source.net.locate = [locations](const std::string& path) {
    return locations.Find(caffe::NetParameter::default_instance(), path);
  };
  return source;
}

NetDescription Describe(const SolverNet& net, const PlanOptions& options) {
  DescribeOptions describe;
  describe.state = net.state;
  describe.locate = net.locate;
  describe.batch_size = options.batch;
  describe.record_shape = options.record_shape;
  try {
    return DescribeNet(net.net, net.phase, describe);
  } catch (const DataError& error) {
    throw DataError(std::string(error.what()) +
                    "; the plan needs the shape of the data only: make the database, or give the "
                    "shape with --input=CxHxW (--input=1x28x28)");
  }
}

// What a flag can be, and what that stands for.
template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
Value Choose(const std::string& flag, const std::string& name, const Choices<Value>& choices) {
  std::string names;
  for (const auto& [known, value] : choices) {
    if (known == name) return value;
    names += (names.empty() ? "" : ", ") + known;
  }
  throw ConfigError("--" + flag + " is \"" + name + "\"; it must be one of " + names);
}

WireCodec ParseCodec(const std::string& name) {
  return Choose<WireCodec>(
      "codec", name,
      {{"fp32", FP32}, {"fp16", FP16}, {"bf16", BF16}, {"1bit", ONE_BIT}, {"topk", TOP_K}});
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

// "3x32x32".
Shape ParseShape(const std::string& text) {
  int extents[3];
  int read = 0;
  const int found =
      std::sscanf(text.c_str(), "%9dx%9dx%9d%n", &extents[0], &extents[1], &extents[2], &read);
  const bool whole = found == 3 && static_cast<size_t>(read) == text.size();
  if (!whole || extents[0] < 1 || extents[1] < 1 || extents[2] < 1) {
    throw ConfigError("--input is \"" + text +
                      "\"; it must be channels, height and width: --input=3x32x32");
  }
  return {extents[0], extents[1], extents[2]};
}

void CheckAtLeastOne(const char* name, const char* what, int64_t value) {
  const std::string flag = std::string("--") + name;
  if (!FlagGiven(name)) throw ConfigError(flag + " is missing; give " + what);
  if (value < 1) {
    throw ConfigError(flag + " is " + std::to_string(value) + "; it must be at least 1");
  }
}

Communication CommunicationFromFlags(const NamedPolicies& policies) {
  Communication communication = Choose<Communication>("policy", FLAGS_policy, policies);
  communication.set_codec(ParseCodec(FLAGS_codec));
  communication.set_lanes(FLAGS_lanes);
  if (FlagGiven("kv_pair_bytes") || !communication.has_kv_pair_bytes()) {
    communication.set_kv_pair_bytes(FLAGS_kv_pair_bytes);
  }
  communication.set_bucket_bytes(FLAGS_bucket_bytes);
  if (!FLAGS_grid.empty()) {
    for (const int size : ParseGrid(FLAGS_grid)) communication.add_grid(size);
  }
  return communication;
}

Cluster ClusterFromFlags() {
  Cluster cluster;
  cluster.set_workers(FLAGS_workers);
  cluster.set_servers(FLAGS_servers);
  if (FlagGiven("flops")) cluster.set_flops(FLAGS_flops);
  Network& network = *cluster.mutable_network();
  network.set_bandwidth(FLAGS_bandwidth);
  if (FlagGiven("goodput_share")) network.set_goodput_share(FLAGS_goodput_share);
  network.set_latency(FLAGS_latency);
  network.set_colocated(FLAGS_colocated);
  return cluster;
}

// As a job config is checked, but what is wrong is a flag.
void Check(const Job& job) {
  try {
    CheckClusterAndCommunication(job);
  } catch (const ConfigError& error) {
    std::string message = error.what();
    for (const std::string prefix : {"cluster.network.", "cluster.", "communication."}) {
      for (size_t at = 0; (at = message.find(prefix, at)) != std::string::npos;) {
        message.replace(at, prefix.size(), "--");
      }
    }
    throw ConfigError(message);
  }
}

// The operations a second with which the model's forward and backward passes take as long as
// `images_per_second` says.
double FlopsFor(const ModelSpec& model, double images_per_second) {
  double seconds = 0;
  for (const LayerTime& layer : LayerTimes(model, 1)) seconds += layer.forward + layer.backward;
  return seconds * images_per_second / static_cast<double>(std::max<int64_t>(model.batch(), 1));
}

ModelSpec ModelOfNet(const PlanOptions& options) {
  const Source source = ReadSource(options);
  ModelSpec model = ToModelSpec(Describe(source.net, options), source.solver);
  if (model.layers_size() == 0) {
    throw ConfigError(source.net.locate(""), "no layer of the net learns anything");
  }
  return model;
}

ModelSpec ModelOfProfile(const std::string& path) {
  Job profile;
  ReadTextFile(path, profile);
  if (profile.training().engine() != Training::REPLAY) {
    throw ConfigError(path + ": is no profile; `poseidon time --out=FILE` writes one");
  }
  return DescribeReplay(profile.training().replay()).model;
}

}  // namespace

ModelAndJob LoadModelAndJob(const PlanOptions& options) {
  Check(options.job);
  ModelAndJob loaded;
  loaded.model = options.profile.empty() ? ModelOfNet(options) : ModelOfProfile(options.profile);
  loaded.job = options.job;
  if (options.images_per_second) {
    loaded.job.mutable_cluster()->set_flops(FlopsFor(loaded.model, *options.images_per_second));
  }
  return loaded;
}

PlannedModel PlanModel(const PlanOptions& options) {
  auto [model, job] = LoadModelAndJob(options);
  Plan plan =
      PlanJob(InformationBook(model, job.cluster().workers(), job.cluster().servers()), job);
  return {std::move(model), std::move(plan)};
}

NamedPolicies PlannedPolicies() {
  const Choices<Communication::Policy> names = {
      {"bytes", Communication::BYTES},
      {"time", Communication::TIME},
      {"ps", Communication::ALL_PS},
      {"sfb", Communication::ALL_SFB},
      {"ring", Communication::ALL_RING},
      {"halving_doubling", Communication::ALL_HALVING_DOUBLING},
      {"torus", Communication::ALL_TORUS},
      {"adam", Communication::ALL_ADAM}};
  NamedPolicies policies;
  for (const auto& [name, policy] : names) {
    policies.emplace_back(name, Communication()).second.set_policy(policy);
  }
  return policies;
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
  options.net = FLAGS_net;
  options.solver = FLAGS_solver;
  options.profile = FLAGS_profile;
  if (FlagGiven("batch")) options.batch = FLAGS_batch;
  if (FlagGiven("input")) options.record_shape = ParseShape(FLAGS_input);
  *options.job.mutable_cluster() = ClusterFromFlags();
  *options.job.mutable_communication() = CommunicationFromFlags(policies);
  if (FlagGiven("images_per_second")) {
    if (!(FLAGS_images_per_second > 0)) {
      throw ConfigError("--images_per_second must be above 0");
    }
    options.images_per_second = FLAGS_images_per_second;
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
  const PlannedModel planned = PlanModel(PlanOptionsFromFlags(PlannedPolicies()));
  std::cout << (json ? PlanJson(planned) : PlanTable(planned));
  return ExitCode::kSuccess;
}

}  // namespace poseidon
