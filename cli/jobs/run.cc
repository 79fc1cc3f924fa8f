#include "cli/jobs/run.h"

#include <gflags/gflags.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>

#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/net/solver.h"
#include "cli/input/data_command.h"
#include "cli/input/flags.h"
#include "cli/input/input_file.h"
#include "cli/input/output_directory.h"
#include "cli/jobs/run_hosts.h"
#include "cli/jobs/training_checks.h"
#include "core/child_process.h"
#include "core/named_file.h"
#include "core/process/bounded_output.h"
#include "core/process/program_directory.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "core/text/nearest.h"
#include "core/text/split.h"
#include "launch/host_query.h"
#include "launch/job_cluster.h"
#include "launch/restart_policy.h"
#include "proto/job_config.h"
#include "worker/engine/patient_read.h"

namespace poseidon {
namespace {

// What a file server, a network or a driver that fails needs to be back is rather a minute than a
// second, and restarts are few: three of them last for three quarters of a minute.
constexpr Duration kFirstJobBackoff = Seconds(15);

// What is to be said of the data of that job, if they can't be read: a sentence behind others.
std::string LackOfData(const std::string& config_path) {
  try {
    const JobConfig config = ReadJobConfig(config_path);
    if (config.job.training().engine() == Training::TORCH) {
      CheckData(config, LoadSolver(SolverPath(config)));
    }
  } catch (const DataError& error) {
    return std::string(" Its data can't be read, either: ") + error.what();
  } catch (const Error&) {
    // What else is wrong shows when that config is given.
  }
  return "";
}

// The job of --config. Where another file may have been meant, as away from the repository's root,
// the error also has what its data need, so that nobody has to find that out by a second error.
JobConfig ConfigOfJob() {
  try {
    return JobConfigFromFlags();
  } catch (const ConfigError& error) {
    const auto meant = HostsGiven() ? std::nullopt : FileMeantBy(FLAGS_config);
    if (!meant) throw;
    throw ConfigError(error.what() + LackOfData(*meant));
  }
}

// The solver, if there is one. Whatever is wrong with the files shows here, before anything is
// started.
std::optional<Solver> CheckFiles(const JobConfig& config) {
  if (config.job.training().engine() != Training::TORCH) return std::nullopt;
  const Training& training = config.job.training();
  Solver solver = LoadSolver(SolverPath(config));
  CheckRecipe(config.job, solver);
  // Hosts have data of their own; their workers say if they can't be read.
  if (!HostsGiven()) CheckTrainNet(config.job, CheckData(config, solver), solver.train);
  CheckLatestSnapshot(training, solver);
  return solver;
}

// Why nothing is left to do for a job that goes on from a snapshot; nothing if there is something.
std::optional<std::string> WhyNothingIsLeft(const FoundSnapshot& snapshot, const Training& training,
                                            const Solver& solver) {
  const int64_t reached = snapshot.state.iteration;
  const int64_t end =
      training.has_iterations() ? training.iterations() : solver.parameter.max_iter();
  if (reached < end) return std::nullopt;
  return "nothing is left to do: " + snapshot.path + " is of iteration " + std::to_string(reached) +
         ", and training ends at " + std::to_string(end) +
         " (max_iter, or the job's training.iterations)";
}

// Likewise of one that goes on from its latest snapshot, unless the snapshots are on another host.
// A command that is entered again until it ends well then comes to its end.
std::optional<std::string> WhyNothingIsLeft(const Training& training, const Solver& solver) {
  if (training.snapshot() != "latest" || HostsGiven()) return std::nullopt;
  const std::string& prefix = solver.parameter.snapshot_prefix();
  const auto path = FindLatestSnapshot(prefix);
  auto why = path ? WhyNothingIsLeft(ReadSnapshot(*path), training, solver) : std::nullopt;
  if (!why) return why;
  const std::string doubt = WhyNotTheNewest(prefix, *path);
  return *why + (doubt.empty() ? "" : ". But " + doubt);
}

bool Replays(const JobConfig& config) { return config.job.training().engine() == Training::REPLAY; }

// The path of a file that a flag names, which may be beside the config, as one that the config
// names. Throws ConfigError if it leads nowhere; an absolute one with --hosts is the hosts' own.
std::string FileOfFlag(const std::string& flag, const std::string& path, const JobConfig& config) {
  const bool is_absolute = std::filesystem::path(path).is_absolute();
  if (is_absolute && HostsGiven()) return path;
  if (const auto found = FindNamedFile(config.path, path)) return *found;
  const std::string lack = "--" + flag + ": there is no file " + path;
  if (is_absolute) throw ConfigError(lack + "; name one that is there");
  const bool means_latest = flag == "snapshot" && Nearest(path, {"latest"});
  std::error_code unknown;
  throw ConfigError(lack + " in the working directory, " +
                    std::filesystem::current_path(unknown).string() + ", nor beside " +
                    config.path + " or in a directory above it" +
                    (means_latest ? "; did you mean latest?" : ""));
}

// What training starts from, if a flag says so.
void SetStart(const std::vector<std::string>& program, JobConfig& config) {
  for (const char* flag : {"weights", "snapshot"}) {
    const std::string value = gflags::GetCommandLineFlagInfoOrDie(flag).current_value;
    if (FlagGiven(flag) && SplitAtCommas(value).empty()) {
      throw ConfigError(std::string("--") + flag + " is empty; name a file, or leave it out");
    }
  }
  if (FLAGS_weights.empty() && FLAGS_snapshot.empty()) return;
  if (!program.empty()) {
    throw ConfigError("--weights and --snapshot are for our own worker; give them to the program");
  }
  if (!FLAGS_weights.empty() && !FLAGS_snapshot.empty()) {
    throw ConfigError("give --snapshot to go on or --weights to start from, not both");
  }
  if (Replays(config)) {
    throw ConfigError("--weights and --snapshot are for nets that are trained, and " + config.path +
                      " has training.engine REPLAY, which computes nothing; leave them out");
  }
  Training& training = *config.job.mutable_training();
  training.clear_weights();
  training.clear_snapshot();
  for (const std::string& path : SplitAtCommas(FLAGS_weights)) {
    training.add_weights(FileOfFlag("weights", path, config));
  }
  if (FLAGS_snapshot == "latest") {
    training.set_snapshot(FLAGS_snapshot);
  } else if (!FLAGS_snapshot.empty()) {
    training.set_snapshot(FileOfFlag("snapshot", FLAGS_snapshot, config));
  }
}

// A job without a monitor of its own has one on a free port.
void SetMonitor(Job& job) {
  if (!FLAGS_monitor) return;
  if (!job.has_monitor()) job.mutable_monitor()->set_port(0);
  // Here all nodes share one machine's ports.
  if (!HostsGiven() && job.monitor().has_node_port()) job.mutable_monitor()->set_node_port(0);
}

// What makes a program a worker is there, and can be named in LD_PRELOAD, where nothing escapes the
// characters that part two names.
void CheckPreloadedLibrary() {
  const std::string library = SupportFile(kPreloadedLibrary);
  if (!std::filesystem::exists(library)) {
    throw Error(ExitCode::kFailure,
                "there is no " + library +
                    ", which makes a program a worker; build all of Poseidon (cmake --build "
                    "build), or install it again");
  }
  const bool is_elsewhere = HostsGiven() && FlagGiven("remote_programs");
  const std::string& path = is_elsewhere ? FLAGS_remote_programs : library;
  if (path.find_first_of(" :") == std::string::npos) return;
  throw Error(ExitCode::kFailure,
              (is_elsewhere ? "--remote_programs: " : "") + path +
                  " has a blank or a colon in it, so the library that makes a program a worker "
                  "can't be loaded from there (LD_PRELOAD); put Poseidon into a directory whose "
                  "path has neither");
}

// A program computes where and in what it decides itself.
void CheckProgram(const JobConfig& config) {
  CheckPreloadedLibrary();
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

// What a signal does, as the flag says or as this job can: a stop and a snapshot are our own
// workers'.
SignalEffect EffectOf(const char* flag, const Job& job, const std::vector<std::string>& program,
                      const std::optional<Solver>& solver) {
  const std::string text = gflags::GetCommandLineFlagInfoOrDie(flag).current_value;
  const SignalEffect effect = ParseSignalEffect(flag, text);
  if (effect == SignalEffect::kNone || effect == SignalEffect::kEnd) return effect;
  std::optional<std::string> why_not;
  if (!program.empty()) {
    why_not = "is for this project's own workers; a program of yours decides itself what it writes";
  } else if (effect == SignalEffect::kSnapshot &&
             (!solver || solver->parameter.snapshot_prefix().empty())) {
    why_not = "needs a solver with a snapshot_prefix, which says where snapshots go";
  } else if (effect == SignalEffect::kStop && job.communication().staleness() != 0) {
    why_not =
        "needs communication.staleness 0: workers that run apart have no iteration in common "
        "to stop before";
  }
  if (!why_not) return effect;
  if (!FlagGiven(flag)) return SignalEffect::kEnd;
  throw ConfigError(std::string("--") + flag + "=" + text + " " + *why_not +
                    "; give none or end, or leave the flag out");
}

// Whether the same job, run again, may come to its end: not if what was wrong is in its files, and
// not if somebody has ended it.
bool MayPass(ExitCode code) {
  switch (code) {
    case ExitCode::kSuccess:
    case ExitCode::kConfigError:
    case ExitCode::kRefused:
    case ExitCode::kDataError:
    case ExitCode::kParametersDiffer:
    case ExitCode::kInterrupted:
      return false;
    default:
      return true;
  }
}

// Where the job writes snapshots on this machine, if it does.
std::optional<std::string> SnapshotPrefix(const std::optional<Solver>& solver) {
  if (HostsGiven() || !solver || solver->parameter.snapshot_prefix().empty()) return std::nullopt;
  return solver->parameter.snapshot_prefix();
}

// The snapshots that the job writes itself on this machine. Those that were there before are an
// earlier job's.
class OwnSnapshots {
 public:
  // Throws as ReadPatiently does, and Interrupted().
  OwnSnapshots(std::optional<std::string> prefix, Interruption& interruption)
      : prefix_(std::move(prefix)), interruption_(interruption) {
    if (prefix_) Look([this] { earlier_ = SnapshotFiles(*prefix_); });
  }

  // The newest, if there is one. Likewise.
  std::optional<FoundSnapshot> Newest() {
    std::optional<FoundSnapshot> newest;
    if (!prefix_) return newest;
    Look([&] {
      const std::optional<std::string> path = FindLatestSnapshot(*prefix_, earlier_);
      // A file server that has gone may leave an empty directory.
      if (!path && !last_.empty()) {
        throw Error(ExitCode::kFailure,
                    last_ + " is gone, from which the job has gone on, and so are all others of " +
                        "its own; bring them back: the job is not begun anew");
      }
      if (path) newest = ReadSnapshot(*path);
    });
    if (newest) last_ = newest->path;
    return newest;
  }

 private:
  void Look(const std::function<void()>& read) {
    ReadPatiently(read, [this](Duration pause) {
      Pause(pause, interruption_);
      return true;
    });
  }

  std::optional<std::string> prefix_;  // none: it writes none
  Interruption& interruption_;
  SnapshotFiles earlier_;
  std::string last_;  // path of the newest so far; empty: none yet
};

// Whoever asks why it failed wants these. Returns where they are, for a message.
std::string KeepLogs(const std::string& out, int restart) {
  const std::string logs = out + "/logs";
  const std::string kept = logs + "." + std::to_string(restart);
  std::error_code error;  // it may not have come to have any
  std::filesystem::remove_all(kept, error);
  std::filesystem::rename(logs, kept, error);
  return error ? "" : "; the logs are in " + kept;
}

// From where a job is run again that has written no snapshot on this machine.
std::string StartOf(const JobClusterOptions& options) {
  if (!options.program.empty()) return "as it was started; its program has to find its checkpoint";
  if (Replays(options.config)) return "from its beginning";
  return options.hosts ? "from the newest snapshot that worker 0 finds"
                       : "from where it was started, as it has written no snapshot yet";
}

// A job that is run, and again after what may pass, as often as --restarts allows.
class RepeatedJob {
 public:
  RepeatedJob(JobClusterOptions options, const std::optional<Solver>& solver,
              Interruption& interruption)
      : options_(std::move(options)),
        solver_(solver),
        interruption_(interruption),
        snapshots_(FLAGS_restarts > 0 ? SnapshotPrefix(solver) : std::nullopt, interruption),
        backoff_(SteadyNow(), kFirstJobBackoff) {}

  ExitCode Run() {
    for (int restarts = 0;; ++restarts) {
      const bool is_last = restarts == FLAGS_restarts;
      try {
        if (restarts > 0 && !Prepare(restarts)) return code_;
        cluster_.emplace(options_);
        code_ = cluster_->Wait(interruption_);
        if (cluster_->stopped() || !MayPass(code_) || is_last) return code_;
        if (cluster_->workers_ended_well()) {
          std::cout << "its workers have ended well, so the job is not run again" << std::endl;
          return code_;
        }
      } catch (const Error& error) {
        // A disk or a file server may fail what is done between two runs, too.
        if (restarts == 0 || !MayPass(error.exit_code()) || is_last) throw;
        std::cerr << "poseidon run: " << error.what() << std::endl;
      }
    }
  }

 private:
  // False: it is not to be run again, and code_ says how it has ended.
  bool Prepare(int restart) {
    const Time due = backoff_.AfterDeath(SteadyNow());
    std::string start = StartOf(options_);
    Training& training = *options_.config.job.mutable_training();
    if (const std::optional<FoundSnapshot> own = snapshots_.Newest()) {
      if (const auto why = WhyNothingIsLeft(*own, training, *solver_)) {
        std::cout << *why << ". The job failed after that, so its last test may be missing, and "
                  << options_.out << "/summary.json tells of the failure" << std::endl;
        code_ = ExitCode::kSuccess;
        return false;
      }
      training.clear_weights();
      training.set_snapshot(own->path);
      start = "from " + own->path;
    }
    const std::string logs = KeepLogs(options_.out, restart);
    const Duration wait = due - SteadyNow();
    std::cout << "the job starts again " << start << In(wait) << " (restart " << restart << " of "
              << FLAGS_restarts << ")" << logs << std::endl;
    Pause(wait, interruption_);
    if (options_.hosts && !AwaitHosts(*options_.hosts, interruption_)) return false;
    backoff_.Restarted(SteadyNow());
    return true;
  }

  JobClusterOptions options_;
  const std::optional<Solver>& solver_;
  Interruption& interruption_;
  OwnSnapshots snapshots_;
  RestartBackoff backoff_;
  std::optional<JobCluster> cluster_;  // the last one, which keeps others out of the directory
  ExitCode code_ = ExitCode::kFailure;
};

// The host of the first worker writes the snapshots, and only it can tell which is the newest. A
// program looks for its own, and a replay has none.
void CheckRestarts(const std::vector<std::string>& program, const JobConfig& config) {
  if (FLAGS_restarts < 0) {
    throw ConfigError("--restarts is " + std::to_string(FLAGS_restarts) +
                      "; it must not be negative");
  }
  if (FLAGS_restarts > 0 && HostsGiven() && program.empty() && !Replays(config) &&
      config.job.training().snapshot() != "latest") {
    throw ConfigError(
        "--restarts with --hosts needs --snapshot=latest, since the snapshots are on the host of "
        "worker 0, which then looks for the newest");
  }
}

// " on 3 host(s)"; nothing if the job runs on this machine.
std::string WhereText(const std::optional<JobHosts>& hosts) {
  if (!hosts) return "";
  std::vector<Host> all = hosts->ranks.workers;
  all.insert(all.end(), hosts->ranks.servers.begin(), hosts->ranks.servers.end());
  return " on " + std::to_string(NamesOf(all).size()) + " host(s)";
}

ExitCode Run(const std::vector<std::string>& program) {
  const BoundedOutput output(std::cout, STDOUT_FILENO);
  const BoundedOutput errors(std::cerr, STDERR_FILENO);
  JobClusterOptions options;
  options.program = program;
  options.config = program.empty() ? ConfigOfJob() : JobConfigFromFlags();
  Job& job = options.config.job;
  options.scheduler_port_set = job.cluster().has_scheduler_port();
  Cluster& cluster = *job.mutable_cluster();
  if (!HostsGiven()) cluster.set_scheduler_host("127.0.0.1");
  SetMonitor(job);
  options.out = JobDirectory(options.config);
  SetStart(program, options.config);
  CheckRestarts(program, options.config);
  std::optional<Solver> solver;
  if (!program.empty()) {
    CheckProgram(options.config);
  } else if ((solver = CheckFiles(options.config))) {
    if (const auto why = WhyNothingIsLeft(job.training(), *solver)) {
      std::cout << *why << std::endl;
      return ExitCode::kSuccess;
    }
  }

  options.effects = {EffectOf("sigint_effect", job, program, solver),
                     EffectOf("sighup_effect", job, program, solver)};
  if (HostsGiven()) {
    Interruption interruption;
    options.hosts =
        HostsFromFlags(options.config, program.empty() ? "poseidon_worker" : "", interruption);
  }
  static_assert(Interruption::kSupervisorPatience > ChildProcess::kReadingDeadline);
  Interruption interruption(options.effects, Interruption::kSupervisorPatience);
  std::cout << "starting a scheduler, " << cluster.servers() << " server(s) and "
            << cluster.workers() << " worker(s)" << WhereText(options.hosts) << "; logs are in "
            << options.out << "/logs" << std::endl;
  const ExitCode code = RepeatedJob(options, solver, interruption).Run();
  if (code == ExitCode::kDataError && options.hosts && program.empty()) {
    std::cerr << "poseidon run: where a host lacks the data, "
              << HowToMakeDataThere(options.config, options.hosts->shell.programs) << std::endl;
  }
  if (code == ExitCode::kSuccess) {
    std::cout << "summary: " << options.out << "/summary.json" << std::endl;
  }
  return code;
}

}  // namespace

ExitCode RunVerb() { return Run({}); }

ExitCode RunProgramVerb(const std::vector<std::string>& program) { return Run(program); }

}  // namespace poseidon
