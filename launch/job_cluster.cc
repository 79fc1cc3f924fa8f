#include "launch/job_cluster.h"

#include <google/protobuf/text_format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "core/atomic_file.h"
#include "core/files/directories.h"
#include "core/files/regular_file.h"
#include "core/process/resource_limits.h"
#include "core/split.h"
#include "core/utf8.h"
#include "launch/program_directory.h"
#include "proto/wire.pb.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

constexpr const char* kScheduler = "scheduler";

std::string IncarnationFlag(const std::string& flag, uint64_t incarnation) {
  return "--" + flag + "=" + std::to_string(incarnation);
}

// The daemons' config is not beside the user's files. Throws ConfigError for one that is not there.
void ResolveStart(const JobConfig& config, Training& training) {
  if (training.has_snapshot() && training.snapshot() != "latest") {
    training.set_snapshot(ResolvePath(config, training.snapshot()));
  }
  for (std::string& entry : *training.mutable_weights()) {
    std::string resolved;
    for (const std::string& path : SplitAtCommas(entry)) {
      resolved += (resolved.empty() ? "" : ",") + ResolvePath(config, path);
    }
    entry = resolved;
  }
}

bool PortIsFree(int port) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool is_free = bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(probe);
  return is_free;
}

// A port that is free together with the next one.
int FindPortPair() {
  std::random_device random;
  // Below Linux's range for outgoing connections (32768 up), so that none takes it meanwhile.
  constexpr unsigned kFirst = 20000;
  constexpr unsigned kPorts = 12000;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int port = static_cast<int>(kFirst + random() % kPorts);
    if (PortIsFree(port) && PortIsFree(port + 1)) return port;
  }
  throw Error(ExitCode::kFailure, "found no free port for the scheduler");
}

// Looks before anything is started: each process for itself would find enough, as long as the
// others have not started theirs.
void CheckThreads(const Job& job) {
  const Cluster& cluster = job.cluster();
  ZmqOptions scheduler = NodeZmqOptions(job, cluster.scheduler_host());
  scheduler.data_lanes = 0;
  constexpr int kOwn = 2;  // the program's first one, and BLAS's
  const int node = ThreadsOf(NodeZmqOptions(job, cluster.scheduler_host())) + kOwn;
  const int all = ThreadsOf(scheduler) + kOwn + (cluster.workers() + cluster.servers()) * node;
  const auto shortage = FindThreadShortage(all, "this job");
  if (shortage) throw Error(ExitCode::kFailure, *shortage);
}

}  // namespace

JobCluster::JobCluster(JobClusterOptions options) : options_(std::move(options)) {
  Job& job = options_.config.job;
  // A user's program has files of its own.
  if (options_.program.empty() && job.training().engine() == Training::TORCH) {
    job.mutable_training()->set_solver(SolverPath(options_.config));
    ResolveStart(options_.config, *job.mutable_training());
  }
  CheckThreads(job);
  if (!options_.scheduler_port_set) job.mutable_cluster()->set_scheduler_port(FindPortPair());
  if (job.training().threads() == 0) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    job.mutable_training()->set_threads(std::max(1, cores / job.cluster().workers()));
  }
  MakeDirectories(options_.out + "/logs");
  lock_.emplace(options_.out, "the job \"" + job.name() + "\"");
  // Daemons of two runs that have the same port, and the same file, must not take each other for
  // theirs.
  job.set_run(std::random_device{}());
  std::filesystem::remove(options_.out + "/summary.json");
  std::filesystem::remove(options_.out + "/scheduler.journal");
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  const std::string path = options_.out + "/job.prototxt";
  WriteFileAtomically(path, text);

  const std::vector<std::string> common = {"--config=" + path, "--out=" + options_.out};
  std::vector<std::string> launched = common;
  launched.push_back("--launched");
  launched.push_back(std::string("--sigint_effect=") + NameOf(options_.effects.sigint));
  launched.push_back(std::string("--sighup_effect=") + NameOf(options_.effects.sighup));
  Start("poseidon_scheduler", kScheduler, launched, true);
  for (int rank = 0; rank < job.cluster().servers(); ++rank) {
    std::vector<std::string> arguments = common;
    arguments.push_back("--rank=" + std::to_string(rank));
    Start("poseidon_server", "server-" + std::to_string(rank), arguments, false);
  }
  for (int rank = 0; rank < job.cluster().workers(); ++rank) StartWorker(rank, common);
}

void JobCluster::StartWorker(int rank, const std::vector<std::string>& common) {
  const std::string name = "worker-" + std::to_string(rank);
  if (options_.program.empty()) {
    std::vector<std::string> arguments = common;
    arguments.push_back("--rank=" + std::to_string(rank));
    Start("poseidon_worker", name, arguments, false);
    return;
  }
  // A program that uses the front door asks the environment for its job and rank
  // (SessionOptions::FromEnvironment); one that knows nothing of us is made a worker by the library
  // that is loaded before its own (caffe_adapter/patch/preload.cc).
  const char* const preloaded = std::getenv("LD_PRELOAD");
  std::vector<std::string> command = {
      "/usr/bin/env",
      "LD_PRELOAD=" + SupportFile(kPreloadedLibrary) +
          (preloaded == nullptr ? "" : ":" + std::string(preloaded)),
      "POSEIDON_JOB=" + std::filesystem::absolute(options_.out + "/job.prototxt").string(),
      "POSEIDON_RANK=" + std::to_string(rank)};
  command.insert(command.end(), options_.program.begin(), options_.program.end());
  StartCommand(name, std::move(command), false);
}

void JobCluster::Start(const std::string& program, const std::string& name,
                         const std::vector<std::string>& arguments, bool inherit_output) {
  std::vector<std::string> all = {ProgramDirectory() + "/" + program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  StartCommand(name, std::move(all), inherit_output);
}

void JobCluster::StartCommand(const std::string& name, std::vector<std::string> command,
                                bool inherit_output) {
  ChildOptions child;
  child.name = name;
  child.command = std::move(command);
  child.log = options_.out + "/logs/" + name + ".log";
  child.inherit_output = inherit_output;
  child.piped_input = name == kScheduler;
  commands_.push_back(child);
  incarnations_.push_back(DrawRandom());
  const bool ours = options_.program.empty() && name != kScheduler;
  if (ours) child.command.push_back(IncarnationFlag("incarnation", incarnations_.back()));
  children_.emplace_back(std::move(child));
}

ChildProcess JobCluster::Restart(size_t index, int restarts) {
  ChildOptions child = commands_[index];
  // The log of the one that died is of use to who asks why.
  child.log =
      options_.out + "/logs/" + child.name + ".restart-" + std::to_string(restarts) + ".log";
  // The scheduler is known by its journal.
  if (index > 0) {
    const uint64_t dead = std::exchange(incarnations_[index], DrawRandom());
    child.command.push_back(IncarnationFlag("incarnation", incarnations_[index]));
    child.command.push_back(IncarnationFlag("replaces", dead));
  }
  return ChildProcess(std::move(child));
}

ExitCode JobCluster::Wait(Interruption& interruption) {
  WatchOptions watch;
  watch.heartbeat_deadline =
      Seconds(options_.config.job.communication().heartbeat_deadline_seconds());
  watch.interruption = &interruption;
  if (options_.config.job.recovery().mode() != Recovery::NONE) {
    watch.restart = [this](size_t index, int restarts) { return Restart(index, restarts); };
  }
  if (options_.config.job.recovery().mode() == Recovery::SHRINK) {
    watch.goes_on_without = [](size_t index) { return index > 0; };
  }
  watch.tell_lost = [this](size_t index, const std::string& cause) { TellLost(index, cause); };
  watch.say = [](const std::string& news) { std::cerr << "poseidon run: " << news << std::endl; };
  const WatchResult result = WatchDaemons(children_, watch);
  for (const size_t culprit : result.culprits) Explain(children_[culprit]);
  CorrectSummary(result);
  return result.code;
}

void JobCluster::TellLost(size_t index, const std::string& cause) {
  const auto servers = static_cast<size_t>(options_.config.job.cluster().servers());
  const bool is_server = index <= servers;
  wire::LostProcess lost;
  lost.set_role(static_cast<uint32_t>(is_server ? Role::kServer : Role::kWorker));
  lost.set_rank(static_cast<int>(is_server ? index - 1 : index - 1 - servers));
  lost.set_cause(cause);
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string line;
  printer.PrintToString(lost, &line);
  children_.front().Write(line + "\n");
}

void JobCluster::CorrectSummary(const WatchResult& result) const {
  const std::string path = options_.out + "/summary.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  auto summary = nlohmann::ordered_json::parse(ReadRegularFile(path, ExitCode::kFailure), nullptr,
                                               /*allow_exceptions=*/false);
  const int code = static_cast<int>(result.code);
  if (!summary.is_object() || summary.value("exit_code", code) == code) return;
  summary["exit_code"] = code;
  if (!result.culprits.empty()) {
    const ChildProcess& culprit = children_[result.culprits.front()];
    summary["reason"] = culprit.name() + ": " + Printable(LastLines(culprit.log(), 1));
  }
  WriteFileAtomically(path, summary.dump(2) + "\n");
}

void JobCluster::Explain(ChildProcess& child) const {
  std::cerr << "poseidon run: " << child.name() << " " << child.Poll()->ToString()
            << " (log: " << child.log() << ")" << std::endl;
  std::string reason = LastLines(child.log(), 1);
  if (child.Poll()->signal != 0) {
    reason = LastWords(child.log());
    if (reason.empty()) return;
    reason += "\n";
  } else if (reason.empty()) {
    reason = "its log says nothing; is there room on its disk?\n";
  }
  std::cerr << "  " << Printable(reason) << std::flush;
}

}  // namespace poseidon
