#include "launch/job_cluster.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/atomic_file.h"
#include "core/files/directories.h"
#include "core/files/log_lines.h"
#include "core/files/regular_file.h"
#include "core/process/allowance.h"
#include "core/process/program_directory.h"
#include "core/process/resource_limits.h"
#include "core/text/split.h"
#include "core/text/utf8.h"
#include "launch/given_up.h"
#include "launch/handed_key.h"
#include "proto/lanes.h"
#include "proto/wire.pb.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

constexpr const char* kScheduler = "scheduler";
constexpr size_t kFirstServer = 1;               // of the nodes: the scheduler is before it
constexpr const char* kEvents = ".events.json";  // EventFileName's ending
constexpr const char* kTrace = ".trace.json";
constexpr const char* kMonitorUrl = "monitor.url";  // JobMonitor::kUrlFile, of a room above
constexpr const char* kRestart = ".restart-";       // in the log's name of who takes a place

// By which a user chooses OpenBLAS's threads.
constexpr const char* kBlasVariables[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                          "OMP_NUM_THREADS"};

std::string BlasAssignment(int threads) {
  return "OPENBLAS_NUM_THREADS=" + std::to_string(threads);
}

// How a node's process is told its number, and that of the dead one whose place it takes: a daemon
// by flags, a program of the user's by variables of its environment.
std::vector<std::string> IdentityOf(bool is_daemon, uint64_t incarnation, uint64_t replaces) {
  if (incarnation == 0) return {};
  std::vector<std::string> identity = {(is_daemon ? "--incarnation=" : "POSEIDON_INCARNATION=") +
                                       std::to_string(incarnation)};
  if (replaces != 0) {
    identity.push_back((is_daemon ? "--replaces=" : "POSEIDON_REPLACES=") +
                       std::to_string(replaces));
  }
  return identity;
}

std::string TextOf(const Job& job) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  return text;
}

void RemoveFiles(const std::string& directory, bool (*is_one)(const std::string& name)) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!is_one(entry.path().filename().string())) continue;
    if (entry.is_regular_file(ignored)) files.push_back(entry.path());
  }
  for (const auto& path : files) std::filesystem::remove(path);
}

// What the job before, which may have had more nodes or restarts, has left would be taken for this
// one's.
void RemoveEarlier(const std::string& out) {
  try {
    for (const char* name : {"summary.json", kJournalFile, kMonitorUrl}) {
      std::filesystem::remove(out + "/" + name);
    }
    RemoveFiles(out, [](const std::string& name) {
      return name.ends_with(kEvents) || name.ends_with(kTrace);
    });
    RemoveFiles(out + "/logs", [](const std::string& name) {
      return name.find(kRestart) != std::string::npos && name.ends_with(".log");
    });
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ExitCode::kFailure,
                std::string("can't remove what an earlier job has left: ") + error.what());
  }
}

// Of a file that OUT/job.prototxt names.
void CheckPath(const std::string& path) {
  if (!FindNotUtf8(path)) return;
  throw ConfigError(Printable(path) +
                    " is no UTF-8, and OUT/job.prototxt, which has to name it, is; rename the "
                    "file or its directory");
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

void ResolveFiles(JobConfig& config) {
  Training& training = *config.job.mutable_training();
  training.set_solver(SolverPath(config));
  if (training.has_snapshot() && training.snapshot() != "latest") {
    training.set_snapshot(ResolvePath(config, training.snapshot(), "training.snapshot"));
  }
  for (std::string& entry : *training.mutable_weights()) {
    std::string resolved;
    for (const std::string& path : SplitAtCommas(entry)) {
      resolved += (resolved.empty() ? "" : ",") + ResolvePath(config, path, "training.weights");
    }
    entry = resolved;
    CheckPath(entry);
  }
  CheckPath(training.solver());
  CheckPath(training.snapshot());
}

void CheckKeyPath(const Job& job, const std::string& out) {
  const bool is_in_out = !job.has_security() || job.security().has_key();
  CheckPath(is_in_out ? std::filesystem::absolute(out).string() : job.security().key_file());
}

std::optional<std::string> BlasThreads(int threads) {
  for (const char* name : kBlasVariables) {
    if (std::getenv(name) != nullptr) return std::nullopt;
  }
  return BlasAssignment(threads);
}

std::vector<std::string> HostProgramStart(const std::string& library, int threads) {
  std::string chosen;
  for (const char* name : kBlasVariables) chosen += std::string("${") + name + "+chosen}";
  const std::string script = "[ \"" + chosen + "\" ] || export " + BlasAssignment(threads) +
                             "; export LD_PRELOAD=\"${LD_PRELOAD:+$LD_PRELOAD:}\"" +
                             ShellQuoted(library) + "; exec \"$@\"";
  return {"/bin/sh", "-c", script, "sh"};
}

std::string PreloadedLibraryThere(const RemoteShell& shell) {
  const std::filesystem::path here = SupportFile(kPreloadedLibrary);
  return (std::filesystem::path(shell.programs) / here.lexically_relative(ProgramDirectory()))
      .lexically_normal()
      .string();
}

JobCluster::JobCluster(JobClusterOptions options) : options_(std::move(options)) {
  Prepare();
  const Cluster& cluster = options_.config.job.cluster();
  Add(SchedulerNode());
  for (int rank = 0; rank < cluster.servers(); ++rank) Add(DaemonNode("server", rank));
  for (int rank = 0; rank < cluster.workers(); ++rank) {
    Add(options_.program.empty() ? DaemonNode("worker", rank) : ProgramNode(rank));
  }
}

void JobCluster::Prepare() {
  Job& job = options_.config.job;
  // A user's program has files of its own.
  if (options_.program.empty() && job.training().engine() == Training::TORCH) {
    ResolveFiles(options_.config);
  }
  if (options_.hosts || job.has_security()) CheckKeyPath(job, options_.out);
  if (!options_.hosts) CheckThreads(job);
  ClaimSchedulersFiles(job);  // here, too: of hosts this program is connected with each process
  if (!options_.scheduler_port_set) {
    job.mutable_cluster()->set_scheduler_port(ports_.emplace().first());
  }
  if (job.training().threads() == 0 && !options_.hosts) {
    job.mutable_training()->set_threads(std::max(1, UsableCores() / job.cluster().workers()));
  }
  if (!job.cluster().has_cores() && !options_.hosts && PlansLanes(job)) {
    job.mutable_cluster()->set_cores(std::max(1, UsableCores() / job.cluster().workers()));
  }
  MakeDirectories(options_.out + "/logs");
  lock_.emplace(options_.out + "/lock", "the job \"" + job.name() + "\"");
  if (!lock_->holder().empty()) {
    throw ConfigError(options_.out + " is in use by " + lock_->holder() +
                      "; wait for its end, or choose another directory");
  }
  // Daemons of two runs that have the same port, and the same file, must not take each other for
  // theirs.
  job.set_run(std::random_device{}());
  RemoveEarlier(options_.out);
  if (options_.hosts) MakeKeyIfOpen(job, options_.out);
  MoveKeyToFile(job, options_.out, /*alone=*/true);
  WriteFileAtomically(options_.out + "/job.prototxt", TextOf(job));
  if (options_.hosts) text_for_hosts_ = TextOf(WithKeyInside(job));
}

JobCluster::Node JobCluster::SchedulerNode() const {
  Node node;
  node.name = kScheduler;
  node.command = {ProgramDirectory() + "/poseidon_scheduler", "--launched",
                  std::string("--sigint_effect=") + NameOf(options_.effects.sigint),
                  std::string("--sighup_effect=") + NameOf(options_.effects.sighup)};
  return node;
}

JobCluster::Node JobCluster::DaemonNode(const std::string& role, int rank) const {
  Node node;
  node.name = role + "-" + std::to_string(rank);
  node.incarnation = DrawRandom();
  std::string programs = ProgramDirectory();
  if (options_.hosts) {
    const HostRanks& ranks = options_.hosts->ranks;
    node.host = (role == "worker" ? ranks.workers : ranks.servers).at(static_cast<size_t>(rank));
    programs = options_.hosts->shell.programs;
  }
  node.command = {programs + "/poseidon_" + role, "--rank=" + std::to_string(rank)};
  if (node.host && node.host->address != node.host->name) {
    node.command.push_back("--host=" + node.host->address);
  }
  return node;
}

// A program that uses the front door asks the environment for its job and rank
// (SessionOptions::FromEnvironment); one that knows nothing of us is made a worker by the library
// that is loaded before its own (caffe_adapter/patch/preload.cc).
JobCluster::Node JobCluster::ProgramNode(int rank) const {
  Node node;
  node.name = "worker-" + std::to_string(rank);
  node.is_daemon = false;
  if (Recovers()) node.incarnation = DrawRandom();
  node.command = {"/usr/bin/env", "POSEIDON_RANK=" + std::to_string(rank)};
  const int threads = options_.config.job.training().threads();
  if (options_.hosts) {
    node.host = options_.hosts->ranks.workers.at(static_cast<size_t>(rank));
    if (node.host->address != node.host->name) {
      node.command.push_back("POSEIDON_HOST=" + node.host->address);
    }
    const std::vector<std::string> start =
        HostProgramStart(PreloadedLibraryThere(options_.hosts->shell), threads);
    node.command.insert(node.command.end(), start.begin(), start.end());
  } else {
    std::string library = SupportFile(kPreloadedLibrary);
    // What the user preloads comes first, as a sanitizer's runtime has to.
    const char* const preloaded = std::getenv("LD_PRELOAD");
    if (preloaded != nullptr) library = std::string(preloaded) + ":" + library;
    node.command.push_back("POSEIDON_JOB=" +
                           std::filesystem::absolute(options_.out + "/job.prototxt").string());
    node.command.push_back("LD_PRELOAD=" + library);
    if (const auto variable = BlasThreads(threads)) node.command.push_back(*variable);
  }
  node.command.insert(node.command.end(), options_.program.begin(), options_.program.end());
  return node;
}

void JobCluster::Add(Node node) {
  if (node.host) AwaitRoom(ShellsTo(*node.host));
  const std::vector<std::string> identity = IdentityOf(node.is_daemon, node.incarnation, 0);
  children_.push_back(Start(node, LogOf(node.name), identity));
  nodes_.push_back(std::move(node));
}

std::vector<ChildProcess*> JobCluster::ShellsTo(const Host& host) {
  std::vector<ChildProcess*> shells;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (nodes_[i].host && nodes_[i].host->name == host.name) shells.push_back(&children_[i]);
  }
  return shells;
}

std::string JobCluster::LogOf(const std::string& name) const {
  return options_.out + "/logs/" + name + ".log";
}

ChildProcess JobCluster::Start(const Node& node, const std::string& log,
                               const std::vector<std::string>& identity) const {
  std::vector<std::string> command = node.command;
  // A program's variables stand behind `env`, before the program.
  command.insert(node.is_daemon ? command.end() : command.begin() + 1, identity.begin(),
                 identity.end());
  return node.host ? StartThere(node, log, std::move(command))
                   : StartHere(node, log, std::move(command));
}

ChildProcess JobCluster::StartHere(const Node& node, const std::string& log,
                                   std::vector<std::string> command) const {
  ChildOptions child;
  child.name = node.name;
  child.command = std::move(command);
  if (node.is_daemon) {
    child.command.push_back("--config=" + options_.out + "/job.prototxt");
    child.command.push_back("--out=" + options_.out);
  }
  child.log = log;
  child.inherit_output = node.name == kScheduler && !options_.silent;
  child.piped_input = node.name == kScheduler;
  return ChildProcess(std::move(child));
}

ChildProcess JobCluster::StartThere(const Node& node, const std::string& log,
                                    std::vector<std::string> command) const {
  RemoteCommand remote;
  remote.name = node.name;
  remote.host = node.host->name;
  remote.command = std::move(command);
  remote.is_daemon = node.is_daemon;
  remote.is_replaced = Recovers();
  remote.job = text_for_hosts_;
  remote.log = log;
  remote.result = ResultOf(node);
  remote.output = options_.out + "/" + remote.result;
  return StartRemotely(options_.hosts->shell, remote);
}

bool JobCluster::Recovers() const {
  return options_.config.job.recovery().mode() != Recovery::NONE;
}

std::string JobCluster::ResultOf(const Node& node) const {
  const bool traced = options_.config.job.training().trace();
  return node.name + (traced ? kTrace : kEvents);
}

ChildProcess JobCluster::Restart(size_t index, int restarts) {
  Node& node = nodes_[index];
  // The scheduler, which has no number, is known by its journal.
  const uint64_t another = node.incarnation != 0 ? DrawRandom() : 0;
  // The log of the one that died is of use to who asks why.
  ChildProcess process = Start(node, LogOf(node.name + kRestart + std::to_string(restarts)),
                               IdentityOf(node.is_daemon, another, node.incarnation));
  node.incarnation = another;
  return process;
}

ExitCode JobCluster::Wait(Interruption& interruption) {
  WatchOptions watch;
  watch.heartbeat_deadline =
      Seconds(options_.config.job.communication().heartbeat_deadline_seconds());
  watch.interruption = &interruption;
  if (Recovers()) {
    watch.restart = [this](size_t index, int restarts) { return Restart(index, restarts); };
    watch.has_started = [this](size_t index) {
      return !nodes_[index].host || HasStartedRemotely(children_[index]);
    };
  }
  GivenUpProcesses given_up(options_.out + "/" + kJournalFile);
  if (Recovers()) watch.given_up = [&] { return NodesOf(given_up.TakeNew()); };
  if (options_.config.job.recovery().mode() == Recovery::SHRINK) {
    watch.goes_on_without = [this](size_t index) { return index > 0 && !IsLastServer(index); };
  }
  if (options_.config.job.has_elastic()) {
    const auto servers = static_cast<size_t>(options_.config.job.cluster().servers());
    watch.may_leave = [servers](size_t index) { return index > servers; };
  }
  watch.tell_lost = [this](size_t index, const std::string& cause) { TellLost(index, cause); };
  if (!options_.silent) {
    watch.say = [](const std::string& news) { std::cerr << "poseidon run: " << news << std::endl; };
  }
  const WatchResult result = WatchDaemons(children_, watch);
  for (const size_t culprit : result.culprits) {
    if (!options_.silent) Explain(children_[culprit]);
  }
  RemoveEmptyResults();
  try {
    CorrectSummary(result);
  } catch (const Error& error) {
    // How the job has ended says more, and is said already.
    if (!options_.silent) std::cerr << "poseidon run: " << error.what() << std::endl;
  }
  stopped_ = result.stopped;
  const auto workers =
      children_.begin() +
      static_cast<ptrdiff_t>(kFirstServer + options_.config.job.cluster().servers());
  workers_ended_well_ = std::all_of(workers, children_.end(),
                                    [](ChildProcess& worker) { return worker.Poll()->ok(); });
  return result.code;
}

bool JobCluster::IsLastServer(size_t index) {
  const auto servers = static_cast<size_t>(options_.config.job.cluster().servers());
  if (index < kFirstServer || index >= kFirstServer + servers) return false;
  if (!children_[index].Poll()) last_server_ = index;
  return index == last_server_ && AllServersHaveDied();
}

bool JobCluster::AllServersHaveDied() {
  for (int i = 0; i < options_.config.job.cluster().servers(); ++i) {
    const std::optional<ExitStatus>& status = children_[kFirstServer + i].Poll();
    if (!status || status->ok()) return false;
  }
  return true;
}

std::map<size_t, std::string> JobCluster::NodesOf(
    const std::map<uint64_t, std::string>& processes) const {
  std::map<size_t, std::string> nodes;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto found = processes.find(nodes_[i].incarnation);
    // The scheduler is no node that it could give up.
    if (nodes_[i].incarnation != 0 && found != processes.end()) nodes[i] = found->second;
  }
  return nodes;
}

void JobCluster::TellLost(size_t index, const std::string& cause) {
  const auto servers = static_cast<size_t>(options_.config.job.cluster().servers());
  const bool is_server = index <= servers;
  wire::LostProcess lost;
  lost.set_role(static_cast<uint32_t>(is_server ? Role::kServer : Role::kWorker));
  lost.set_rank(static_cast<int>(index - kFirstServer - (is_server ? 0 : servers)));
  lost.set_cause(cause);
  lost.set_incarnation(nodes_[index].incarnation);
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string line;
  printer.PrintToString(lost, &line);
  children_.front().Write(line + "\n");
}

void JobCluster::CorrectSummary(const WatchResult& result) {
  const std::string path = options_.out + "/summary.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  auto summary =
      nlohmann::ordered_json::parse(ReadRegularFile(path, ExitCode::kFailure, kMostFileBytes),
                                    nullptr, /*allow_exceptions=*/false);
  const int code = static_cast<int>(result.code);
  if (!summary.is_object() || summary.value("exit_code", code) == code) return;
  summary["exit_code"] = code;
  if (!result.culprits.empty()) {
    ChildProcess& culprit = children_[result.culprits.front()];
    std::string said = Printable(LastLines(culprit.log(), 1));
    said.erase(said.find_last_not_of("\r\n") + 1);
    if (said.empty()) said = "it " + culprit.Poll()->ToString();
    summary["reason"] = culprit.name() + ": " + said;
  }
  WriteFileAtomically(path, summary.dump(2) + "\n");
}

void JobCluster::RemoveEmptyResults() const {
  for (const Node& node : nodes_) {
    const std::string path = options_.out + "/" + ResultOf(node);
    std::error_code none;
    if (node.host && std::filesystem::file_size(path, none) == 0) std::filesystem::remove(path);
  }
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
