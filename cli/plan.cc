#include "cli/plan.h"

#include <cstdio>
#include <iostream>

#include "caffe_adapter/net.h"
#include "caffe_adapter/solver.h"
#include "cli/flags.h"
#include "proto/text_format.h"
#include "scheduler/information_book.h"
#include "scheduler/planner.h"

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

Communication::Policy ParsePolicy(const std::string& name) {
  if (name == "bytes") return Communication::BYTES;
  if (name == "ps") return Communication::ALL_PS;
  if (name == "sfb") return Communication::ALL_SFB;
  throw ConfigError("--policy is \"" + name + "\"; it must be bytes, ps or sfb");
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

Communication CommunicationFromFlags() {
  Communication communication;
  communication.set_policy(ParsePolicy(FLAGS_policy));
  if (FLAGS_lanes < 1 || FLAGS_lanes > 64) {
    throw ConfigError("--lanes is " + std::to_string(FLAGS_lanes) +
                      "; it must be between 1 and 64");
  }
  if (FLAGS_kv_pair_bytes < 4 || FLAGS_kv_pair_bytes % 4 != 0) {
    throw ConfigError("--kv_pair_bytes is " + std::to_string(FLAGS_kv_pair_bytes) +
                      "; it must be a multiple of 4, the size of a float");
  }
  communication.set_lanes(FLAGS_lanes);
  communication.set_kv_pair_bytes(FLAGS_kv_pair_bytes);
  return communication;
}

PlanOptions OptionsFromFlags() {
  if (FLAGS_net.empty() == FLAGS_solver.empty()) {
    throw ConfigError(
        "give either --net, a Caffe net prototxt, or --solver, a Caffe solver "
        "prototxt");
  }
  CheckAtLeastOne("workers", "the number of workers", FLAGS_workers);
  CheckAtLeastOne("servers", "the number of parameter servers", FLAGS_servers);
  if (FlagGiven("batch")) CheckAtLeastOne("batch", "the samples of a worker", FLAGS_batch);
  PlanOptions options;
  options.net = FLAGS_net;
  options.solver = FLAGS_solver;
  options.workers = FLAGS_workers;
  options.servers = FLAGS_servers;
  if (FlagGiven("batch")) options.batch = FLAGS_batch;
  if (FlagGiven("input")) options.record_shape = ParseShape(FLAGS_input);
  options.communication = CommunicationFromFlags();
  return options;
}

}  // namespace

PlannedModel PlanModel(const PlanOptions& options) {
  const Source source = ReadSource(options);
  PlannedModel planned;
  planned.model = ToModelSpec(Describe(source.net, options), source.solver);
  if (planned.model.layers_size() == 0) {
    throw ConfigError(source.net.locate(""), "no layer of the net learns anything");
  }
  planned.plan = MakePlan(InformationBook(planned.model, options.workers, options.servers),
                          options.communication);
  return planned;
}

ExitCode PlanVerb() {
  if (FLAGS_format != "table" && FLAGS_format != "json") {
    throw ConfigError("--format is \"" + FLAGS_format + "\"; it must be table or json");
  }
  const PlannedModel planned = PlanModel(OptionsFromFlags());
  std::cout << (FLAGS_format == "json" ? PlanJson(planned) : PlanTable(planned));
  return ExitCode::kSuccess;
}

}  // namespace poseidon
