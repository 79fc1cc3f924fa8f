#include "cli/local_cluster.h"

#include <google/protobuf/text_format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "cli/program_directory.h"
#include "core/atomic_file.h"
#include "core/split.h"

namespace poseidon {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(50);
// What a daemon needs to end once it knows that the job has ended: the last messages may linger for
// 2 s.
constexpr Duration kEndingTime = Seconds(5);
// A daemon that ended by itself has told the scheduler, if it had joined; news travels fast.
constexpr Duration kNewsTime = Seconds(2);

constexpr Time kNever = Time::max();

Time Now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

std::string PreloadLibrary() {
  const std::string patch = ProgramDirectory() + "/libposeidon_caffe.so";
  if (!std::filesystem::exists(patch)) {
    throw ConfigError("there is no " + patch +
                      ", which `poseidon run -- PROGRAM` needs; build with -DCaffe_DIR or "
                      "-DPOSEIDON_CAFFE_ROOT (docs/caffe.md)");
  }
  return ProgramDirectory() + "/libposeidon_caffe_preload.so";
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

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::string last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {
  Job& job = options_.config.job;
  if (job.training().engine() == Training::TORCH) {
    job.mutable_training()->set_solver(ResolvePath(options_.config, job.training().solver()));
    ResolveStart(options_.config, *job.mutable_training());
  }
  if (!options_.scheduler_port_set) job.mutable_cluster()->set_scheduler_port(FindPortPair());
  if (job.training().threads() == 0) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    job.mutable_training()->set_threads(std::max(1, cores / job.cluster().workers()));
  }
  std::filesystem::create_directories(options_.out + "/logs");
  std::filesystem::remove(options_.out + "/summary.json");
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  const std::string path = options_.out + "/job.prototxt";
  WriteFileAtomically(path, text);

  const std::vector<std::string> common = {"--config=" + path, "--out=" + options_.out};
  Start("poseidon_scheduler", "scheduler", common, true);
  for (int rank = 0; rank < job.cluster().servers(); ++rank) {
    std::vector<std::string> arguments = common;
    arguments.push_back("--rank=" + std::to_string(rank));
    Start("poseidon_server", "server-" + std::to_string(rank), arguments, false);
  }
  for (int rank = 0; rank < job.cluster().workers(); ++rank) StartWorker(rank, common);
}

void LocalCluster::StartWorker(int rank, const std::vector<std::string>& common) {
  const std::string name = "worker-" + std::to_string(rank);
  if (options_.program.empty()) {
    std::vector<std::string> arguments = common;
    arguments.push_back("--rank=" + std::to_string(rank));
    Start("poseidon_worker", name, arguments, false);
    return;
  }
  // The program knows nothing of us: what it needs is in its environment (caffe_adapter/patch).
  const char* const preloaded = std::getenv("LD_PRELOAD");
  std::vector<std::string> command = {
      "/usr/bin/env",
      "LD_PRELOAD=" + PreloadLibrary() + (preloaded == nullptr ? "" : ":" + std::string(preloaded)),
      "POSEIDON_JOB=" + std::filesystem::absolute(options_.out + "/job.prototxt").string(),
      "POSEIDON_RANK=" + std::to_string(rank)};
  command.insert(command.end(), options_.program.begin(), options_.program.end());
  children_.emplace_back(name, command, options_.out + "/logs/" + name + ".log",
                         /*inherit_output=*/false);
}

void LocalCluster::Start(const std::string& program, const std::string& name,
                         const std::vector<std::string>& arguments, bool inherit_output) {
  std::vector<std::string> all = {ProgramDirectory() + "/" + program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  children_.emplace_back(name, all, options_.out + "/logs/" + name + ".log", inherit_output);
}

bool LocalCluster::AnyAlive() {
  bool alive = false;
  for (ChildProcess& child : children_) alive |= !child.Poll().has_value();
  return alive;
}

ChildProcess* LocalCluster::FirstFailure() {
  for (ChildProcess& child : children_) {
    if (child.Poll() && !child.Poll()->ok()) return &child;
  }
  return nullptr;
}

void LocalCluster::SignalAll(int signal) {
  for (ChildProcess& child : children_) child.Signal(signal);
}

ExitCode LocalCluster::Wait(Interruption& interruption) {
  const Duration notice =
      Seconds(options_.config.job.communication().heartbeat_deadline_seconds()) + kEndingTime;
  Time give_up = kNever;      // when to stop waiting for the others' own end
  Time stop_asking = kNever;  // when to end the scheduler, because a node never joined
  Time kill_at = kNever;
  bool interrupted = false;
  while (AnyAlive()) {
    const Time now = Now();
    if (!interrupted && interruption.Pending()) {
      interrupted = true;
      std::cerr << "poseidon run: interrupted; ending the job" << std::endl;
      children_.front().Signal(SIGINT);
      give_up = now + kEndingTime;
    }
    if (ChildProcess* failed = FirstFailure(); failed != nullptr && give_up == kNever) {
      give_up = now + notice;
      if (failed->Poll()->signal == 0) stop_asking = now + kNewsTime;
      std::cerr << "poseidon run: " << failed->name() << " " << failed->Poll()->ToString()
                << "; waiting for the others to end" << std::endl;
    }
    // A scheduler that ends by itself has told all the others that the job is over.
    if (const auto& scheduler = children_.front().Poll(); scheduler && scheduler->signal == 0) {
      give_up = std::min(give_up, now + kEndingTime);
    }
    if (now >= stop_asking) {
      stop_asking = kNever;
      children_.front().Signal(SIGINT);
    }
    if (now >= give_up && kill_at == kNever) {
      kill_at = now + kEndingTime;
      SignalAll(SIGTERM);
    }
    if (now >= kill_at) SignalAll(SIGKILL);
    std::this_thread::sleep_for(kPollInterval);
  }
  return Verdict(interrupted);
}

ExitCode LocalCluster::Verdict(bool interrupted) {
  if (interrupted) return ExitCode::kInterrupted;
  if (FirstFailure() == nullptr) return ExitCode::kSuccess;
  // Those who only lost a peer repeat what the scheduler says; the others have their own story.
  ExitCode verdict = ExitCode::kPeerLost;
  // The same code comes from the same cause: one of each is enough.
  std::set<int> explained = {static_cast<int>(ExitCode::kInterrupted)};
  for (ChildProcess& child : children_) {
    const ExitStatus& status = *child.Poll();
    if (status.ok() || status.code == static_cast<int>(ExitCode::kPeerLost)) continue;
    if (status.signal == 0 && !explained.insert(status.code).second) continue;
    Explain(child);
    if (status.signal == 0 && verdict == ExitCode::kPeerLost) {
      verdict = static_cast<ExitCode>(status.code);
    }
  }
  for (ChildProcess& child : children_) {
    if (child.Poll()->code != static_cast<int>(ExitCode::kPeerLost)) continue;
    Explain(child);
    break;
  }
  return verdict;
}

void LocalCluster::Explain(ChildProcess& child) const {
  std::cerr << "poseidon run: " << child.name() << " " << child.Poll()->ToString()
            << " (log: " << child.log() << ")" << std::endl;
  if (child.Poll()->signal == 0) std::cerr << "  " << LastLine(child.log()) << std::endl;
}

}  // namespace poseidon
