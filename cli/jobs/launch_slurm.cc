#include "cli/jobs/launch_slurm.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/net/solver.h"
#include "cli/input/flags.h"
#include "cli/input/output_directory.h"
#include "cli/jobs/run_hosts.h"
#include "cli/jobs/training_checks.h"
#include "core/atomic_file.h"
#include "core/child_process.h"
#include "core/files/directories.h"
#include "core/files/log_lines.h"
#include "core/process/program_directory.h"
#include "launch/handed_key.h"
#include "launch/job_cluster.h"
#include "launch/remote_shell.h"
#include "launch/slurm_script.h"
#include "proto/job_config.h"

namespace poseidon {
namespace {

void SetCount(const char* flag, int value, int most, int& target) {
  if (!FlagGiven(flag)) return;
  if (value < 1 || value > most) {
    throw ConfigError(std::string("--") + flag + " is " + std::to_string(value) +
                      "; it must be between 1 and " + std::to_string(most));
  }
  target = value;
}

// Daemons of batch jobs work in the directory in which the job was submitted.
SlurmJob JobFromFlags() {
  JobConfig config = JobConfigFromFlags();
  SlurmJob slurm;
  Cluster& cluster = *config.job.mutable_cluster();
  if (!cluster.network().colocated()) {
    throw ConfigError(config.path +
                      ": cluster.network.colocated is false, but Slurm's tasks share nodes: server "
                      "i runs beside worker i, and the plan would be for other machines; leave the "
                      "field out");
  }
  slurm.nodes = std::max(cluster.workers(), cluster.servers());
  SetCount("nodes", FLAGS_nodes, slurm.nodes, slurm.nodes);
  if (FLAGS_restarts < 0) {
    throw ConfigError("--restarts is " + std::to_string(FLAGS_restarts) +
                      "; it must not be negative");
  }
  slurm.restarts = FLAGS_restarts;
  constexpr int kMostNotice = 65535;  // Slurm's own
  if (FLAGS_limit_notice < 0 || FLAGS_limit_notice > kMostNotice) {
    throw ConfigError("--limit_notice is " + std::to_string(FLAGS_limit_notice) +
                      "; it must be between 0 and " + std::to_string(kMostNotice));
  }
  if (config.job.training().engine() == Training::TORCH) {
    ResolveFiles(config);
    const Training& training = config.job.training();
    const Solver solver = LoadSolver(training.solver());
    CheckRecipe(config.job, solver);
    CheckLatestSnapshot(training, solver);
    const caffe::SolverParameter& parameter = solver.parameter;
    slurm.snapshot_prefix = parameter.snapshot_prefix();
    slurm.iterations = training.has_iterations() ? training.iterations() : parameter.max_iter();
    slurm.snapshot_at_end =
        !parameter.snapshot_prefix().empty() && parameter.snapshot_after_train();
  }
  slurm.scheduler_port_set = cluster.has_scheduler_port();
  slurm.programs = FlagGiven("remote_programs") ? FLAGS_remote_programs : ProgramDirectory();
  slurm.out = std::filesystem::absolute(JobDirectory(config)).lexically_normal().string();
  if (slurm.out.find('\\') != std::string::npos) {
    throw ConfigError("the output directory " + slurm.out +
                      " has a backslash in its name, which Slurm takes out; choose another one "
                      "with --out");
  }
  CheckKeyPath(config.job, slurm.out);
  slurm.job = std::move(config.job);
  if (CanStop(slurm)) {
    slurm.notice_seconds = FLAGS_limit_notice;
  } else if (FlagGiven("limit_notice") && FLAGS_limit_notice > 0) {
    throw ConfigError(
        "--limit_notice needs a solver with a snapshot_prefix, which says where snapshots go, and "
        "without snapshot_after_train: false; and communication.staleness 0. Leave the flag out");
  }
  return slurm;
}

std::vector<std::string> SubmitCommand(const std::string& script) {
  std::istringstream flags(FLAGS_sbatch_flags);
  std::vector<std::string> command = {"sbatch"};
  command.insert(command.end(), std::istream_iterator<std::string>(flags), {});
  command.push_back(script);
  return command;
}

// As people enter it: only what a shell would take for more than a word has quotes.
std::string ShellText(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    const bool is_plain = std::all_of(word.begin(), word.end(), [](unsigned char letter) {
      return std::isalnum(letter) != 0 ||
             std::string_view("%+,-./:=@_").find(static_cast<char>(letter)) !=
                 std::string_view::npos;
    });
    text += (text.empty() ? "" : " ") + (is_plain ? word : ShellQuoted(word));
  }
  return text;
}

ExitCode Submit(const std::string& script, const std::string& log) {
  ChildOptions child;
  child.name = "sbatch";
  child.command = SubmitCommand(script);
  child.command.front() = FindProgram("sbatch");
  child.log = log;
  child.inherit_output = true;
  ChildProcess sbatch(std::move(child));
  const ExitStatus& status = sbatch.Wait();
  if (status.ok()) return ExitCode::kSuccess;
  const std::string said = LastLines(log, 1);
  throw Error(ExitCode::kFailure, "sbatch " + status.ToString() +
                                      (said.empty() ? "" : ": " + said.substr(0, said.size() - 1)) +
                                      "; the script is " + script);
}

}  // namespace

ExitCode LaunchSlurmVerb() {
  SlurmJob slurm = JobFromFlags();
  MakeDirectories(slurm.out + "/logs");
  MoveKeyToFile(slurm.job, slurm.out, /*alone=*/false);
  const std::string script = slurm.out + "/job.sbatch";
  WriteFileAtomically(script, SlurmScript(slurm));
  if (!FLAGS_submit) {
    std::cout << "the script is " << script << "; `" << ShellText(SubmitCommand(script))
              << "` submits it" << std::endl;
    return ExitCode::kSuccess;
  }
  std::cout << "progress will be in " << slurm.out << "/slurm-NUMBER.log, results in " << slurm.out
            << "/summary.json" << std::endl;
  return Submit(script, slurm.out + "/logs/sbatch.log");
}

}  // namespace poseidon
