#include "cli/planning/experiment.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "caffe_adapter/net/solver.h"
#include "cli/input/flags.h"
#include "cli/input/input_file.h"
#include "cli/input/model_source.h"
#include "cli/input/output_directory.h"
#include "cli/output/experiment_progress.h"
#include "cli/output/experiment_report.h"
#include "core/process/allowance.h"
#include "core/process/build_identity.h"
#include "core/process/program_directory.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "experiments/experiment_check.h"
#include "experiments/experiment_file.h"
#include "experiments/experiment_points.h"
#include "experiments/experiment_results.h"
#include "experiments/process_point.h"
#include "experiments/simulated_point.h"
#include "launch/host_query.h"
#include "launch/network_testbed.h"
#include "launch/process_cluster.h"
#include "proto/job_config.h"
#include "worker/recipe.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// How often a wait looks for a signal.
constexpr Duration kTick = Seconds(0.05);
// Within which hosts say how many cores they have; ssh gives up before.
constexpr Duration kCoresDeadline = Seconds(20);

ExperimentMode ModeFromFlags() {
  for (const ExperimentMode mode :
       {ExperimentMode::kSimulate, ExperimentMode::kEmulate, ExperimentMode::kRun}) {
    if (FLAGS_mode == NameOf(mode)) return mode;
  }
  throw ConfigError("--mode is \"" + FLAGS_mode + "\"; it must be simulate, emulate or run");
}

// A flag that says nothing in the mode would be passed over without a word. --hosts says to the
// report of points that were run for how many there are machines, whatever the mode is now.
void RefuseFlagsOfOtherModes(ExperimentMode mode, bool has_run) {
  for (const auto& [flag, its_mode] :
       {std::pair("slow_motion", ExperimentMode::kEmulate),
        std::pair("hosts", ExperimentMode::kRun), std::pair("remote_shell", ExperimentMode::kRun),
        std::pair("remote_programs", ExperimentMode::kRun)}) {
    if (mode == its_mode || !FlagGiven(flag)) continue;
    if (flag == std::string("slow_motion") && FLAGS_slow_motion == 1) continue;  // none
    if (has_run && flag == std::string("hosts")) continue;
    const std::string name = std::string("--") + flag;
    const std::string wanted = std::string("--mode=") + NameOf(its_mode);
    throw ConfigError(name + " is for " + wanted + ", and the mode is " + NameOf(mode) + "; give " +
                      wanted + ", too, or leave " + name + " out");
  }
}

// All that decides a training of the solver but the data: another key for each (KeyOf).
std::string TextOf(const Solver& solver) {
  std::string text = solver.parameter.SerializeAsString() + solver.train.net.SerializeAsString();
  for (const SolverNet& test : solver.tests) text += test.net.SerializeAsString();
  return text;
}

ExperimentModel LoadNet(const ExperimentFile& file, const Net& net) {
  ModelSource source;
  if (net.has_net()) source.net = ResolvePath(file.path, net.net());
  if (net.has_solver()) source.solver = ResolvePath(file.path, net.solver());
  if (net.has_profile()) source.profile = ResolvePath(file.path, net.profile());
  if (net.has_input()) source.record_shape = ParseShape("input", net.input());
  if (net.has_batch()) source.batch = net.batch();
  if (net.has_images_per_second()) source.images_per_second = net.images_per_second();
  ExperimentModel loaded;
  if (net.has_replay()) {
    source.replay = net.replay();
    if (net.has_batch()) source.replay->set_batch(static_cast<int>(net.batch()));
  }
  LoadedModel model = LoadModel(source);
  loaded.model = std::move(model.model);
  loaded.disturbance = model.disturbance;
  loaded.flops = model.flops;
  if (!source.record_shape && !model.inputs.empty()) {
    std::cout << "the net \"" << net.name() << "\": " << SampleInputLines(model.inputs)
              << std::flush;
  }
  if (net.train()) {
    Training& training = loaded.training.emplace();
    training.set_solver(fs::absolute(source.solver).string());
    const Solver solver = LoadSolver(source.solver);
    if (!net.has_iterations() && solver.parameter.max_iter() > kMostIterations) {
      throw ConfigError(source.solver + ": max_iter is " +
                        std::to_string(solver.parameter.max_iter()) + "; write the net's own " +
                        "iterations, at most " + std::to_string(kMostIterations));
    }
    loaded.solver = TextOf(solver);
    if (net.has_shuffle()) training.set_shuffle(net.shuffle());
    CheckOrder(training, solver.train);
    if (net.has_iterations()) training.set_iterations(net.iterations());
    if (net.has_batch()) training.set_batch_per_worker(static_cast<int>(net.batch()));
  }
  return loaded;
}

std::map<std::string, ExperimentModel> LoadNets(const ExperimentFile& file) {
  std::map<std::string, ExperimentModel> models;
  for (const std::string& name : UsedNets(file.experiment)) {
    for (int i = 0; i < file.experiment.net_size(); ++i) {
      if (file.experiment.net(i).name() != name) continue;
      try {
        models[name] = LoadNet(file, file.experiment.net(i));
      } catch (const Error& error) {
        throw Error(error.exit_code(), file.Where("net." + std::to_string(i)).ToString() +
                                           ": the net \"" + name + "\": " + error.what());
      }
    }
  }
  return models;
}

// How a point that was executed came out.
struct Outcome {
  size_t point = 0;
  PointResult result;
  Duration took{};
  std::string failure;  // empty: none
};

Outcome ExecutePoint(size_t index, const ExperimentPoint& point,
                     const std::function<PointResult(const ExperimentPoint&)>& executor) {
  Outcome outcome;
  outcome.point = index;
  const Time start = SteadyNow();
  try {
    outcome.result = executor(point);
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kInterrupted) throw;
    outcome.failure = error.what();
  } catch (const std::bad_alloc&) {
    outcome.failure = "this machine's memory is not enough; with fewer --threads it may be";
  } catch (const std::exception& error) {
    outcome.failure = error.what();
    const auto* const system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
      outcome.failure +=
          ": this user has as many threads as the system allows; give fewer "
          "--threads, or raise the limit (ulimit -u)";
    }
  }
  outcome.took = SteadyNow() - start;
  return outcome;
}

// Simulates points on several threads and hands each outcome to the caller's one.
class Simulations {
 public:
  Simulations(const std::vector<ExperimentPoint>& points, std::vector<size_t> todo, int threads)
      : points_(points), todo_(std::move(todo)), at_a_time_(threads) {
    threads_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // else those that there are do it all
    }
  }
  // What is being simulated is given up.
  ~Simulations() {
    given_up_.request_stop();
    for (std::thread& thread : threads_) thread.join();
  }
  Simulations(const Simulations&) = delete;
  Simulations& operator=(const Simulations&) = delete;

  // Waits for the next one; there must be one. Throws Interrupted.
  Outcome Next(Interruption& interruption) {
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, kTick, [this] { return !outcomes_.empty(); })) {
      if (interruption.Pending()) throw Interrupted();
    }
    if (interruption.Pending()) throw Interrupted();
    Outcome outcome = std::move(outcomes_.front());
    outcomes_.pop_front();
    return outcome;
  }

 private:
  void Work() {
    for (size_t i = next_++; i < todo_.size() && !given_up_.stop_requested(); i = next_++) {
      Outcome outcome;
      try {
        outcome = ExecutePoint(todo_[i], points_[todo_[i]], [this](const ExperimentPoint& point) {
          return SimulatePoint(point, given_up_.get_token(), at_a_time_);
        });
      } catch (const Error&) {
        return;  // it was given up
      }
      const std::lock_guard lock(mutex_);
      outcomes_.push_back(std::move(outcome));
      finished_.notify_one();
    }
  }

  const std::vector<ExperimentPoint>& points_;
  const std::vector<size_t> todo_;
  const int at_a_time_;
  std::atomic<size_t> next_ = 0;
  std::stop_source given_up_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::deque<Outcome> outcomes_;
  std::vector<std::thread> threads_;
};

// The hosts' slots, of which each is a machine of the experiment's cluster.
std::vector<Host> MachinesFromFlags() {
  std::vector<Host> machines = BySlot(ReadHosts(FLAGS_hosts));
  for (const Host& host : machines) {
    if (host.takes_workers && host.takes_servers) continue;
    throw ConfigError(FLAGS_hosts + ": " + host.name +
                      " has roles, and an experiment says itself what runs on its machines; leave "
                      "roles= out");
  }
  return machines;
}

// In which this command executes points.
Circumstances CircumstancesFromFlags(ExperimentMode mode) {
  Circumstances circumstances = {std::string(BuildIdentity()), FLAGS_slow_motion, {}};
  if (mode != ExperimentMode::kRun) return circumstances;
  for (const Host& host : MachinesFromFlags()) {
    circumstances.hosts.push_back(host.name +
                                  (host.address == host.name ? "" : " " + host.address));
  }
  return circumstances;
}

std::vector<const ExperimentPoint*> PointsAt(const ExperimentResults& results,
                                             const std::vector<size_t>& indices) {
  std::vector<const ExperimentPoint*> points;
  for (const size_t i : indices) points.push_back(&results.points()[i]);
  return points;
}

// Executes what is to do and keeps it.
class Execution {
 public:
  Execution(ExperimentResults& results, ExperimentMode mode, Circumstances circumstances,
            const std::vector<size_t>& todo, Interruption& interruption)
      : results_(results),
        mode_(mode),
        circumstances_(std::move(circumstances)),
        interruption_(interruption),
        progress_(std::cout, PointsAt(results, todo), SteadyNow()) {}

  // Throws Interrupted.
  void Execute(const std::vector<size_t>& todo) {
    mode_ == ExperimentMode::kSimulate ? Simulate(todo) : RunProcesses(todo);
  }

  size_t failures() const { return progress_.failures(); }

 private:
  void Simulate(const std::vector<size_t>& todo) {
    const int wanted = FlagGiven("threads") ? FLAGS_threads : AnyIsLarge(todo) ? 1 : UsableCores();
    const int threads = std::min(wanted, static_cast<int>(todo.size()));
    Simulations simulations(results_.points(), todo, threads);
    for (size_t i = 0; i < todo.size(); ++i) Keep(simulations.Next(interruption_));
  }

  void RunProcesses(const std::vector<size_t>& todo) {
    ProcessOptions options;
    options.programs = ProgramDirectory();
    options.interruption = &interruption_;
    options.slow_motion = circumstances_.slow_motion;
    // A training may take days; one that hangs is ended by the deadlines of its own job.
    options.deadline = Duration::max();
    std::optional<RemoteOptions> remote;
    if (mode_ == ExperimentMode::kRun) remote = RemoteFromFlags();
    for (const size_t i : todo) {
      const ExperimentPoint& point = results_.points()[i];
      options.directory = results_.directory() + "/processes/" + KeyOf(point, mode_);
      Keep(ExecutePoint(i, point, [&](const ExperimentPoint& here) {
        if (!remote) return EmulatePoint(here, options);
        AskForCoresOf(here, *remote);
        return RunPoint(here, options, *remote);
      }));
    }
  }

  // Whether one simulation may take most of a machine's memory: 9 GB with 10,000 workers and as
  // many servers, 0.1 GB with 4,096 workers (docs/performance.md).
  bool AnyIsLarge(const std::vector<size_t>& todo) const {
    constexpr int kMostAtATime = 4096;
    return std::any_of(todo.begin(), todo.end(), [&](size_t point) {
      return MachinesOf(results_.points()[point].job) > kMostAtATime;
    });
  }

  static RemoteOptions RemoteFromFlags() {
    RemoteOptions remote;
    remote.hosts = MachinesFromFlags();
    remote.shell = FLAGS_remote_shell;
    remote.programs = FlagGiven("remote_programs") ? FLAGS_remote_programs : ProgramDirectory();
    return remote;
  }

  // Where a net is really trained; what only sleeps needs none. A host that does not answer fails
  // the points that need it, and is not waited for by each.
  void AskForCoresOf(const ExperimentPoint& point, RemoteOptions& remote) {
    if (point.job.training().engine() == Training::REPLAY) return;
    const int workers = point.job.cluster().workers();
    if (silent_ && workers >= silent_->first) throw silent_->second;
    std::vector<Host> unknown(remote.hosts.begin(), remote.hosts.begin() + workers);
    std::erase_if(unknown, [&](const Host& host) { return remote.cores.contains(host.name); });
    try {
      remote.cores.merge(AskForCores(MakeRemoteShell(remote.shell, remote.programs), unknown,
                                     kCoresDeadline, &interruption_));
    } catch (const Error& error) {
      silent_.emplace(workers, error);
      throw;
    }
  }

  void Keep(const Outcome& outcome) {
    const ExperimentPoint& point = results_.points()[outcome.point];
    if (!outcome.failure.empty()) {
      progress_.Failed(point, outcome.failure);
      return;
    }
    results_.Put(outcome.point, mode_, outcome.result, circumstances_);
    progress_.Done(point, outcome.result, outcome.took, SteadyNow());
  }

  ExperimentResults& results_;
  const ExperimentMode mode_;
  const Circumstances circumstances_;
  Interruption& interruption_;
  ExperimentProgress progress_;
  std::optional<std::pair<int, Error>> silent_;  // why so many of the first hosts can't be asked
};

// Why the mode can't execute the point; nothing if it can. `hosts`: to run on.
std::optional<std::string> WhyNot(const ExperimentPoint& point, ExperimentMode mode, size_t hosts) {
  switch (mode) {
    case ExperimentMode::kEmulate:
      return WhyNotEmulated(point);
    case ExperimentMode::kRun:
      return WhyNotRun(point, hosts);
    default:
      return std::nullopt;
  }
}

std::string Points(size_t count) {
  return std::to_string(count) + (count == 1 ? " point" : " points");
}

// How many machines the user has named; as many as any point needs if none are.
size_t MachineCount() {
  return FLAGS_hosts.empty() ? std::numeric_limits<size_t>::max() : MachinesFromFlags().size();
}

// The points that lack a result in a mode.
struct Todo {
  std::vector<size_t> points;              // that can have one
  std::map<std::string, size_t> left_out;  // how many can't, by the reason

  size_t LeftOut() const {
    size_t all = 0;
    for (const auto& [reason, count] : left_out) all += count;
    return all;
  }
};

Todo PointsToDo(const ExperimentResults& results, ExperimentMode mode) {
  const size_t hosts = mode == ExperimentMode::kRun ? MachineCount() : 0;
  Todo todo;
  for (size_t i = 0; i < results.points().size(); ++i) {
    if (results.Has(i, mode)) continue;
    if (const auto reason = WhyNot(results.points()[i], mode, hosts)) {
      ++todo.left_out[*reason];
    } else {
      todo.points.push_back(i);
    }
  }
  return todo;
}

void Say(const Todo& todo, size_t all) {
  std::cout << Points(all);
  const size_t there = all - todo.points.size() - todo.LeftOut();
  if (there > 0) std::cout << ", of which " << there << " are there already";
  std::cout << std::endl;
  for (const auto& [reason, count] : todo.left_out) {
    std::cout << count << " left out: " << reason << std::endl;
  }
}

// With the points that are there already. Throws ConfigError as RefuseOthers does.
void CompareWithOthers(const ExperimentResults& results, ExperimentMode mode,
                       const Circumstances& now) {
  results.RefuseOthers(mode, now);
  for (const auto& [version, count] : results.Versions(mode)) {
    if (version == now.version) continue;
    std::cout << "they come beside " << Points(count) << " of version " << version
              << "; this is version " << now.version << std::endl;
  }
}

// What tells the report for which points to wait, in all modes that were ever executed.
std::vector<std::string> ReportFlags(const ExperimentResults& results, ExperimentMode executed) {
  std::vector<std::string> flags = {"--points=" + std::to_string(results.points().size())};
  for (const ExperimentMode mode :
       {ExperimentMode::kSimulate, ExperimentMode::kEmulate, ExperimentMode::kRun}) {
    if (mode != executed && !results.HasAny(mode)) continue;
    flags.push_back(std::string("--left_out=") + NameOf(mode) + ":" +
                    std::to_string(PointsToDo(results, mode).LeftOut()));
  }
  return flags;
}

}  // namespace

ExitCode ExperimentVerb() {
  FLAGS_minloglevel = google::GLOG_WARNING;  // that simulated nodes join is no news
  if (FLAGS_experiment.empty()) {
    throw ConfigError(
        "there is no experiment; name a file, such as configs/experiments/busy.prototxt");
  }
  const ExperimentMode mode = ModeFromFlags();
  if (FlagGiven("threads") && FLAGS_threads < 1) throw ConfigError("--threads must be at least 1");
  if (FLAGS_slow_motion < 1 || FLAGS_slow_motion > kMostSlowMotion) {
    throw ConfigError("--slow_motion is " + std::to_string(FLAGS_slow_motion) +
                      "; it must be between 1 and " + std::to_string(kMostSlowMotion));
  }
  if (mode == ExperimentMode::kRun && FLAGS_hosts.empty()) {
    throw ConfigError("--mode=run needs --hosts, a file with a host a line");
  }
  const ExperimentFile file = ReadExperiment(CheckInputFile(FLAGS_experiment));
  // Nor is it that some of them are lost, where an experiment has failures. The file's own warnings
  // have been said by now.
  if (mode == ExperimentMode::kSimulate) FLAGS_minloglevel = google::GLOG_ERROR;
  const std::string directory = OutputDirectory(file.experiment.name(), FLAGS_experiment);
  ExperimentResults results(directory, file.experiment, PointsOf(file, LoadNets(file)));
  RefuseFlagsOfOtherModes(mode, results.HasAny(ExperimentMode::kRun));
  const Todo todo = PointsToDo(results, mode);
  CheckSlowMotion(PointsAt(results, todo.points), FLAGS_slow_motion);
  Say(todo, results.points().size());
  const Circumstances circumstances = CircumstancesFromFlags(mode);
  if (!todo.points.empty()) CompareWithOthers(results, mode, circumstances);
  if (mode == ExperimentMode::kEmulate && !todo.points.empty()) CheckCanMakeTestbed();
  results.MakeDirectory();
  Interruption interruption;
  Execution execution(results, mode, circumstances, todo.points, interruption);
  bool reported = false;
  try {
    execution.Execute(todo.points);
    std::cout << "results: " << directory << "/results.csv" << std::endl;
    reported = MakeReport(directory, ReportFlags(results, mode), interruption, std::cout);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kInterrupted) throw;
    throw Error(ExitCode::kInterrupted,
                std::string(error.what()) + "; the results so far are in " + directory +
                    "/results.csv, and the same command goes on with what is missing");
  }
  if (execution.failures() > 0) {
    std::cout << Points(execution.failures())
              << " failed; the same command tries what failed again, and only that" << std::endl;
    return ExitCode::kFailure;
  }
  return reported ? ExitCode::kSuccess : ExitCode::kFailure;
}

}  // namespace poseidon
