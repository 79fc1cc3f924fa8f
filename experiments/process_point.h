// A point of an experiment (experiments/experiment_point.h) with real processes: the daemons that a
// user starts, over real sockets, on this machine's own network of namespaces or on the user's
// machines. The layers' times are slept (engine REPLAY), or the net is really trained, as the
// point's job says; slow workers sleep longer.
//
// Not thread-safe: one point at a time, in a program without other threads that start programs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/program.h"
#include "core/time.h"
#include "experiments/experiment_point.h"
#include "launch/host_list.h"
#include "launch/network_testbed.h"
#include "launch/remote_shell.h"

namespace poseidon {

struct ProcessOptions {
  std::string programs;   // directory of poseidon_scheduler, poseidon_server and poseidon_worker
  std::string directory;  // of this point alone: gets job.prototxt, summary.json and logs/
  // Iterations of a replay that count, if the point does not ask for more: what a busy machine
  // does to some of them should not show. Those before them, until the training is steady, are as
  // many as in a simulation, or more.
  int iterations = 20;
  // Emulation of a replay: everything takes so many times as long, computing as well as links, and
  // what is measured is divided by it. So this machine's few processors stand for as many faster
  // ones, whom several workers and fast links keep less busy than that (Gupta et al., "To infinity
  // and beyond: time-warped network emulation", NSDI 2006). At least 1.
  int slow_motion = 1;
  // From the first process's start to the last one's end.
  Duration deadline = Seconds(600);
  Interruption* interruption = nullptr;  // may be null
};

// The machines to run on. Machine i, which has worker i (and server i if they are colocated, else
// servers come after the workers), is host i; the scheduler is on the first.
struct RemoteOptions {
  std::vector<Host> hosts;  // of one slot each, which takes workers and servers
  // Followed by a host's name and a command for its shell. Words are parted by blanks. Its end, or
  // that of its standard input, ends the command.
  std::string shell = DefaultRemoteShell();
  std::string programs;  // their directory on the hosts
  // By a host's name, for nets that are really trained: where the job names no threads, each worker
  // of a host computes on its part of them. On a host that is not here it computes on one.
  std::map<std::string, int> cores;
  // On the hosts: in which each daemon gets one for the job's file and results, until its end.
  std::string directory = "/tmp";
};

// Why a point can't be emulated, or run on so many hosts; nullopt: it can. A sentence's part, for
// people: "devices of a worker are only simulated".
std::optional<std::string> WhyNotEmulated(const ExperimentPoint& point);
std::optional<std::string> WhyNotRun(const ExperimentPoint& point, size_t hosts);

// More would be none: a second becomes eleven days.
inline constexpr int kMostSlowMotion = 1'000'000;

// Throws ConfigError that names the flag --slow_motion if not all of the points can be emulated so
// many times as slow (ProcessOptions::slow_motion), with the most that they can: the daemons would
// refuse rates, delays and times that are out of the ranges of a job config, to which the links of
// a point's condition are held, too. 1 to kMostSlowMotion.
void CheckSlowMotion(const std::vector<const ExperimentPoint*>& points, int slow_motion);

// The network that a point is emulated on. Links are shaped such that payload reaches the point's
// goodput_share of them, as simulated ones do, or what TCP leaves, where that is less.
TestbedOptions TestbedFor(const ExperimentPoint& point);

// Each machine is a network namespace, its link shaped so (TestbedFor); latency is what the links
// have (tens of microseconds), whatever the point says. Needs root, `ip` and `tc`; throws Error
// that says what is missing, ConfigError with WhyNotEmulated's reason, Interrupted(), and Error
// with the last lines of the culprit's log if a daemon fails. Whatever happens, no process and no
// namespace stays behind.
PointResult EmulatePoint(const ExperimentPoint& point, const ProcessOptions& options);

// The links are what the hosts have; the point's bandwidth and latency are what the planner is
// told. Throws as EmulatePoint does, and ConfigError that names a host which the others don't
// reach.
PointResult RunPoint(const ExperimentPoint& point, const ProcessOptions& options,
                     const RemoteOptions& remote);

}  // namespace poseidon
