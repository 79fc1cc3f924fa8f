#include "launch/process_cluster.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/files/log_lines.h"
#include "launch/daemon_watch.h"
#include "launch/remote_shell.h"

namespace poseidon {
namespace {

// Enough to see what a daemon was doing, few enough for a message.
constexpr size_t kLinesToQuote = 4;

std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

DaemonCommand CommandFor(const std::string& role, int rank) {
  return {
      role + "-" + std::to_string(rank), "poseidon_" + role, {"--rank=" + std::to_string(rank)}};
}

// Starts daemons one after another.
class Starter {
 public:
  explicit Starter(const ProcessClusterOptions& options) : options_(options) {}

  void Start(int machine, const DaemonCommand& command) {
    if (!options_.hosts.empty()) AwaitRoom(ShellsTo(machine));
    daemons_.push_back(options_.start(machine, command));
    machines_.push_back(static_cast<size_t>(machine));
  }
  std::vector<ChildProcess> Take() { return std::move(daemons_); }

 private:
  // A host may be several machines.
  std::vector<ChildProcess*> ShellsTo(int machine) {
    const std::string& host = options_.hosts.at(static_cast<size_t>(machine));
    std::vector<ChildProcess*> shells;
    for (size_t i = 0; i < daemons_.size(); ++i) {
      if (options_.hosts.at(machines_[i]) == host) shells.push_back(&daemons_[i]);
    }
    return shells;
  }

  const ProcessClusterOptions& options_;
  std::vector<ChildProcess> daemons_;
  std::vector<size_t> machines_;  // of the daemons
};

std::vector<ChildProcess> StartAll(const ProcessClusterOptions& options) {
  const Cluster& cluster = options.job.cluster();
  const int first_server = cluster.network().colocated() ? 0 : cluster.workers();
  Starter starter(options);
  starter.Start(MachinesOf(options.job), {"scheduler", "poseidon_scheduler", {}});
  for (int rank = 0; rank < cluster.servers(); ++rank) {
    starter.Start(first_server + rank, CommandFor("server", rank));
  }
  for (int rank = 0; rank < cluster.workers(); ++rank) {
    DaemonCommand command = CommandFor("worker", rank);
    const auto factor = options.compute_factors.find(rank);
    if (factor != options.compute_factors.end()) {
      command.flags.push_back("--compute_factor=" + Text(factor->second));
    }
    starter.Start(rank, command);
  }
  return starter.Take();
}

std::string Quote(ChildProcess& daemon) {
  const std::string said = LastLines(daemon.log(), kLinesToQuote);
  return daemon.name() + " " + daemon.Poll()->ToString() + " (log: " + daemon.log() + ")" +
         (said.empty() ? "" : ":\n" + said.substr(0, said.size() - 1));
}

}  // namespace

int MachinesOf(const Job& job) {
  const Cluster& cluster = job.cluster();
  return cluster.network().colocated() ? std::max(cluster.workers(), cluster.servers())
                                       : cluster.workers() + cluster.servers();
}

void RunProcesses(const ProcessClusterOptions& options) {
  std::vector<ChildProcess> daemons = StartAll(options);
  WatchOptions watch;
  watch.heartbeat_deadline = Seconds(options.job.communication().heartbeat_deadline_seconds());
  watch.deadline = options.deadline;
  watch.interruption = options.interruption;
  const WatchResult result = WatchDaemons(daemons, watch);
  switch (result.code) {
    case ExitCode::kSuccess:
      return;
    case ExitCode::kInterrupted:
      if (options.interruption != nullptr && options.interruption->Pending()) throw Interrupted();
      break;
    case ExitCode::kDeadlineExceeded:
      if (!result.culprits.empty()) break;
      throw DeadlineExceeded("the training has not ended after " +
                             std::to_string(static_cast<int>(ToSeconds(options.deadline))) +
                             " s; the scheduler's log, " + daemons.front().log() + ", ends with\n" +
                             LastLines(daemons.front().log(), kLinesToQuote));
    default:
      break;
  }
  std::string message = "the training has failed";
  for (const size_t culprit : result.culprits) message += "\n" + Quote(daemons[culprit]);
  throw Error(result.code, message);
}

}  // namespace poseidon
