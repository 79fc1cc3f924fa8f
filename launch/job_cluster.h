// JobCluster: all daemons of a job on this machine, from their start to the last one's end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/files/directory_lock.h"
#include "core/program.h"
#include "launch/daemon_watch.h"
#include "proto/job_config.h"

namespace poseidon {

// What is loaded into a program of the user's before its own libraries; a SupportFile
// (launch/program_directory.h).
inline constexpr const char* kPreloadedLibrary = "libposeidon_caffe_preload.so";

struct JobClusterOptions {
  JobConfig config;                 // checked; workers and servers as they shall be
  bool scheduler_port_set = false;  // by the user: else a free one is taken
  // What each worker is instead of our daemon: a program of the user's and its arguments.
  std::vector<std::string> program;
  SignalEffects effects;  // the scheduler gets each signal that asks for something
  std::string out;        // directory for job.prototxt, summary.json, logs/ and traces
};

class JobCluster {
 public:
  // Writes OUT/job.prototxt, the config that all daemons read, and starts them. Throws ConfigError
  // if another job has OUT now.
  explicit JobCluster(JobClusterOptions options);

  // Waits until every daemon has ended and returns the job's exit code. If one dies, the scheduler
  // is told, and the others are given the heartbeat deadline to end by themselves; whoever is still
  // there then is killed. An interruption ends the job through the scheduler.
  ExitCode Wait(Interruption& interruption);

 private:
  void Start(const std::string& program, const std::string& name,
             const std::vector<std::string>& arguments, bool inherit_output);
  void StartWorker(int rank, const std::vector<std::string>& common);
  void StartCommand(const std::string& name, std::vector<std::string> command, bool inherit_output);
  // Another process in the place of a daemon that has died.
  ChildProcess Restart(size_t index, int restarts);
  void TellLost(size_t index, const std::string& cause);
  void Explain(ChildProcess& child) const;
  // The scheduler does not know of a node that failed before it joined.
  void CorrectSummary(const WatchResult& result) const;

  JobClusterOptions options_;
  std::optional<DirectoryLock> lock_;   // of OUT
  std::vector<ChildProcess> children_;  // the scheduler first
  std::vector<ChildOptions> commands_;  // by child
  std::vector<uint64_t> incarnations_;  // by child; of our own servers and workers
};

}  // namespace poseidon
