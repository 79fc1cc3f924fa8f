#include "cli/run.h"

#include <iostream>

#include "caffe_adapter/net/solver.h"
#include "cli/flags.h"
#include "cli/input/data_command.h"
#include "cli/input/input_file.h"
#include "core/program.h"
#include "launch/local_cluster.h"
#include "proto/job_config.h"

namespace poseidon {
namespace {

// What training and its tests read is there.
void CheckData(const JobConfig& config, const Solver& solver) {
  try {
    DescribeNet(solver.train);
    if (solver.parameter.test_interval() <= 0) return;
    for (const SolverNet& test : solver.tests) DescribeNet(test);
  } catch (const DataError& error) {
    throw DataError(std::string(error.what()) + "; " + HowToMakeData(config));
  }
}

// Whatever is wrong with the files shows here, before anything is started.
void CheckFiles(const JobConfig& config) {
  if (config.job.training().engine() != Training::TORCH) return;
  const Training& training = config.job.training();
  const Solver solver = LoadSolver(SolverPath(config));
  CheckData(config, solver);
  if (training.snapshot() == "latest" && solver.parameter.snapshot_prefix().empty()) {
    throw ConfigError(solver.locate(""),
                      "there is no snapshot_prefix, so there is no latest snapshot");
  }
}

int Nodes(const char* flag, int value, int configured) {
  if (value == 0) return configured;
  if (value < 0) {
    throw ConfigError(std::string("--") + flag + " is " + std::to_string(value) +
                      "; it must be at least 1");
  }
  return value;
}

// What training starts from, if a flag says so.
void SetStart(const std::vector<std::string>& program, Training& training) {
  if (FLAGS_weights.empty() && FLAGS_snapshot.empty()) return;
  if (!program.empty()) {
    throw ConfigError("--weights and --snapshot are for our own worker; give them to the program");
  }
  if (!FLAGS_weights.empty() && !FLAGS_snapshot.empty()) {
    throw ConfigError("give --snapshot to go on or --weights to start from, not both");
  }
  training.clear_weights();
  training.clear_snapshot();
  if (!FLAGS_weights.empty()) training.add_weights(FLAGS_weights);
  if (!FLAGS_snapshot.empty()) training.set_snapshot(FLAGS_snapshot);
}

// A program computes where and in what it decides itself.
void CheckProgram(const JobConfig& config) {
  const Training& training = config.job.training();
  const char* field = nullptr;
  if (config.job.cluster().devices_per_worker() != 1) field = "cluster.devices_per_worker";
  if (training.device() != Training::CPU) field = "training.device";
  if (training.precision() != Training::FLOAT32) field = "training.precision";
  if (field == nullptr) return;
  throw ConfigError(config.path + ": " + field +
                    " is for this project's own workers; a program of yours is told itself what "
                    "to compute on, as by Caffe's --gpu. Remove the field");
}

ExitCode Run(const std::vector<std::string>& program) {
  LocalClusterOptions options;
  options.program = program;
  options.config = ReadJobConfig(CheckInputFile(FLAGS_config));
  Job& job = options.config.job;
  options.scheduler_port_set = job.cluster().has_scheduler_port();
  Cluster& cluster = *job.mutable_cluster();
  cluster.set_workers(Nodes("workers", FLAGS_workers, cluster.workers()));
  cluster.set_servers(Nodes("servers", FLAGS_servers, cluster.servers()));
  cluster.set_scheduler_host("127.0.0.1");
  options.out = FLAGS_out.empty() ? "out/" + job.name() : FLAGS_out;
  SetStart(program, *job.mutable_training());
  if (program.empty()) {
    CheckFiles(options.config);
  } else {
    CheckProgram(options.config);
  }

  Interruption interruption;
  std::cout << "starting a scheduler, " << cluster.servers() << " server(s) and "
            << cluster.workers() << " worker(s); logs are in " << options.out << "/logs"
            << std::endl;
  const std::string out = options.out;
  LocalCluster local(std::move(options));
  const ExitCode code = local.Wait(interruption);
  if (code == ExitCode::kSuccess) std::cout << "summary: " << out << "/summary.json" << std::endl;
  return code;
}

}  // namespace

ExitCode RunVerb() { return Run({}); }

ExitCode RunProgramVerb(const std::vector<std::string>& program) { return Run(program); }

}  // namespace poseidon
