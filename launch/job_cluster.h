// JobCluster: all daemons of a job, from their start to the last one's end: the scheduler on this
// machine, servers and workers here or on other hosts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/files/file_lock.h"
#include "core/program.h"
#include "launch/daemon_watch.h"
#include "launch/host_list.h"
#include "launch/port_pair.h"
#include "launch/remote_shell.h"
#include "proto/job_config.h"

namespace poseidon {

// What is loaded into a program of the user's before its own libraries; a SupportFile
// (core/process/program_directory.h).
inline constexpr const char* kPreloadedLibrary = "libposeidon_caffe_preload.so";

// Where servers and workers run, if not on this machine.
struct JobHosts {
  HostRanks ranks;
  RemoteShell shell;
};

struct JobClusterOptions {
  JobConfig config;                 // checked; workers and servers as they shall be
  bool scheduler_port_set = false;  // by the user: else a free one is taken
  std::optional<JobHosts> hosts;    // none: all run here
  // What each worker is instead of our daemon: a program of the user's and its arguments.
  std::vector<std::string> program;
  SignalEffects effects;  // the scheduler gets each signal that asks for something
  bool silent = false;    // nothing is shown: progress goes to the scheduler's log
  std::string out;        // directory for job.prototxt, summary.json, logs/ and traces
};

// What the environment of a user's program on this machine is to say of the threads by which
// OpenBLAS multiplies, the program's factors in libposeidon included; by itself it takes all cores
// for each program. `threads` is the job's training.threads. Nothing where the environment says it
// already, in any of OpenBLAS's ways.
std::optional<std::string> BlasThreads(int threads);

// The first words of the command of a user's program on a host, which give it the same threads and
// the library of kPreloadedLibrary, at `library` there: that host's environment is the one that may
// have chosen threads already, and whose LD_PRELOAD is loaded before the library.
std::vector<std::string> HostProgramStart(const std::string& library, int threads);

// Where the library of kPreloadedLibrary is on hosts: from their programs' directory as from this
// machine's.
std::string PreloadedLibraryThere(const RemoteShell& shell);

// Makes the paths of a job of our own workers, its solver and what training starts from, ones by
// which the daemons find them, whose config is not beside the user's files. Throws ConfigError for
// one that is not there, and one that is no UTF-8, as each text of a config is.
void ResolveFiles(JobConfig& config);

// Throws ConfigError if OUT/job.prototxt can't name the file of the job's key, as ResolveFiles does
// for those that it finds. The key of a job that has none is made in `out`, and one that the config
// has itself is moved there.
void CheckKeyPath(const Job& job, const std::string& out);

class JobCluster {
 public:
  // Writes OUT/job.prototxt, the config that all daemons read, and starts them. A job on hosts
  // whose config has no `security` gets a key of its own, OUT/run.key; one that the config has
  // itself goes to OUT/config.key. Throws ConfigError if another job has OUT now.
  explicit JobCluster(JobClusterOptions options);

  // Waits until every daemon has ended and returns the job's exit code. If one dies, the scheduler
  // is told, and the others are given the heartbeat deadline to end by themselves; whoever is still
  // there then is killed. An interruption ends the job through the scheduler.
  ExitCode Wait(Interruption& interruption);

  // After Wait: whether somebody has asked for the training's end, so that a failure on the way
  // there is none to try again after.
  bool stopped() const { return stopped_; }
  // Likewise, whether all workers have ended with code 0: the training has come to its end,
  // whatever has failed after that.
  bool workers_ended_well() const { return workers_ended_well_; }

 private:
  // A process of the job, as it is started and started again.
  struct Node {
    std::string name;                  // "worker-3"
    std::vector<std::string> command;  // the program and its flags, but --config and --out
    bool is_daemon = true;             // not a program of the user's
    std::optional<Host> host;          // none: this machine
    uint64_t incarnation = 0;          // the present process's; the scheduler has none
  };

  void Prepare();
  void Add(Node node);
  Node SchedulerNode() const;
  Node DaemonNode(const std::string& role, int rank) const;
  Node ProgramNode(int rank) const;
  // `identity`: by what the process is told its incarnation.
  ChildProcess Start(const Node& node, const std::string& log,
                     const std::vector<std::string>& identity) const;
  ChildProcess StartHere(const Node& node, const std::string& log,
                         std::vector<std::string> command) const;
  ChildProcess StartThere(const Node& node, const std::string& log,
                          std::vector<std::string> command) const;
  bool Recovers() const;
  std::vector<ChildProcess*> ShellsTo(const Host& host);
  // Another process in the place of a daemon that has died.
  ChildProcess Restart(size_t index, int restarts);
  // Whether it is the server that died last, now that all have: a job that goes on without one or
  // another of them waits for one then, and has given up the ranks of those that died before.
  bool IsLastServer(size_t index);
  bool AllServersHaveDied();
  // By index instead of incarnation; nothing of processes that are not there any more.
  std::map<size_t, std::string> NodesOf(const std::map<uint64_t, std::string>& processes) const;
  void TellLost(size_t index, const std::string& cause);
  void Explain(ChildProcess& child) const;
  // The scheduler does not know of a node that failed before it joined.
  void CorrectSummary(const WatchResult& result);
  // The file that a node on another host leaves here.
  std::string ResultOf(const Node& node) const;
  void RemoveEmptyResults() const;
  std::string LogOf(const std::string& name) const;

  JobClusterOptions options_;
  std::string text_for_hosts_;     // of OUT/job.prototxt, with the job's key
  std::optional<FileLock> lock_;   // of OUT
  std::optional<PortPair> ports_;  // the scheduler's, unless the user has named one
  std::vector<Node> nodes_;        // the scheduler first
  std::vector<ChildProcess> children_;
  size_t last_server_ = 0;  // that was seen alive, by index; the scheduler's: none
  bool stopped_ = false;
  bool workers_ended_well_ = false;
};

}  // namespace poseidon
