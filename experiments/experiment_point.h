// One point of an experiment (proto/experiment.proto): a training on a cluster, and what came of
// it. Plain values, however the point was executed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/experiment.pb.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

enum class ExperimentMode { kSimulate, kEmulate, kRun };
// "simulate", ...
const char* NameOf(ExperimentMode mode);

struct ExperimentPoint {
  std::string net;     // as the experiment calls it
  std::string system;  // likewise
  std::string policy;  // of `poseidon simulate`, from which the system starts
  std::string sweep;   // the first that it is of (NameOfSweep)
  // Cluster and communication are complete. `training` says whether processes replay the model, or
  // has the solver that they train.
  Job job;
  bool flops_of_net = false;  // the cluster's flops are not the file's but what the net's rate says
  // With the times of its layers, each for one device's part of the batch; `batch` is the worker's:
  // that of all its devices.
  ModelSpec model;
  std::string solver;  // of what is really trained: ExperimentModel's
  // What the job does not say; without a name: nothing is different.
  Condition condition;
  bool plan_only = false;
  int iterations = 3;  // that count
  // With one mtbf; not set: nothing fails.
  std::optional<Failures> failures;
  std::string recovery;  // the system's, where nodes fail
};

// Times in seconds. An iteration is one step, also with local steps (communication.local_steps).
// Bytes are an iteration's: bodies of gradients, values and factors as they are on the network,
// without headers and control messages.
struct PointResult {
  double iteration = 0;
  double compute = 0;  // by a worker in an iteration, without updates
  double busy = 0;     // share of the iteration that workers compute
  // What the machine moves that sends and receives most.
  double bytes_sent = 0;
  double bytes_received = 0;
  // Sent and received, the mean over all machines with a worker or a server; 0 where it is only
  // planned.
  double mean_bytes = 0;
  double predicted = 0;  // iteration, by the planner; 0: none
  // Parameters by scheme, such as "PS 20.0M, SFB 123.6M".
  std::string schemes;
  // Only where it was really trained: by iteration, mean over workers; the last test's accuracy.
  std::vector<double> losses;
  std::optional<double> accuracy;
  // Only where nodes fail: the share of the time that goes into iterations that stay done.
  std::optional<double> goodput;
};

}  // namespace poseidon
