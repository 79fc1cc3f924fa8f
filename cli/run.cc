#include "cli/run.h"

#include <iostream>

#include "caffe_adapter/solver.h"
#include "cli/flags.h"
#include "cli/local_cluster.h"
#include "proto/job_config.h"
#include "transport/program.h"

namespace poseidon {
namespace {

// Whatever is wrong with the files shows here, before anything is started.
void CheckFiles(const JobConfig& config) {
  if (config.job.training().engine() != Training::TORCH) return;
  const Training& training = config.job.training();
  const Solver solver = LoadSolver(ResolvePath(config, training.solver()));
  DescribeNet(solver.train);
}

int Nodes(const char* flag, int value, int configured) {
  if (value == 0) return configured;
  if (value < 0) {
    throw ConfigError(std::string("--") + flag + " is " + std::to_string(value) +
                      "; it must be at least 1");
  }
  return value;
}

ExitCode Run(const std::vector<std::string>& program) {
  LocalClusterOptions options;
  options.program = program;
  options.config = ReadJobConfig(FLAGS_config);
  Job& job = options.config.job;
  options.scheduler_port_set = job.cluster().has_scheduler_port();
  Cluster& cluster = *job.mutable_cluster();
  cluster.set_workers(Nodes("workers", FLAGS_workers, cluster.workers()));
  cluster.set_servers(Nodes("servers", FLAGS_servers, cluster.servers()));
  cluster.set_scheduler_host("127.0.0.1");
  options.out = FLAGS_out.empty() ? "out/" + job.name() : FLAGS_out;
  if (program.empty()) CheckFiles(options.config);

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
