// What the planner knows of the machines: the inputs of every prediction. Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// A worker and its machine that are not as the others.
struct MachineDeviation {
  double compute_factor = 1;  // of the others' computing times
  double link_share = 1;      // of the others' goodput
};

// Seconds and bytes; rates are a second's. An infinite rate costs no time.
struct ClusterModel {
  int workers = 1;
  int servers = 1;
  // Server i runs on worker i's machine, where it exists, and shares its link; traffic between them
  // crosses no network. Else every process has a machine of its own.
  bool colocated = true;
  // Payload that a machine's link carries, each direction.
  double goodput = 1.175e9;  // 94% of 10 Gb/s
  double latency = 50e-6;    // one way, program to program
  // Seconds of a lane's thread for each message that it gets: what sending it took and what taking
  // it does.
  double message_cost = 20e-6;
  // Bytes of each connection on their way to the network, not to be overtaken: what sockets hold
  // (window_bytes) and what the kernel does (ZmqOptions.unsent_bytes). 0: all can be overtaken.
  int64_t send_buffer_bytes = 384 << 10;
  // Bytes of a message besides floats: the frame's header, ZeroMQ's and TCP's; as the simulator's.
  int64_t header_bytes = 64;
  // Bytes of gradient that a server or a peer adds up: one core, bound by memory.
  double reduction_rate = 4e9;
  // Bytes of parameters that a server or worker updates; reads gradient and optimizer_state, too.
  double update_rate = 2e9;
  // Floating-point operations of a device of a worker, or of its host where it has none: rebuilding
  // a gradient from its factors, and layers whose times are not known.
  double flops = 4e12;
  // A worker's devices, and bytes between two of them, and between one and its host's memory, each
  // direction (planner/cost/device_copy_cost.h). Infinite: nothing is copied.
  int devices = 1;
  double device_rate = std::numeric_limits<double>::infinity();
  double copy_rate = std::numeric_limits<double>::infinity();
  // Who makes the updates that are a worker's: its host, at update_rate, or its devices, each its
  // share, at device_update_rate (bytes of parameters). Factors go to the devices, which rebuild
  // gradients from them, unless the host is to keep what it rebuilds, as for recovery.
  bool devices_update = false;
  double device_update_rate = 1.44e11;
  bool host_rebuilds = false;
  // Floating-point operations at which a lane rebuilds gradients where devices compute, whose
  // `flops` then are: a core's, for which slices of a lane's work are made
  // (core/arithmetic/sliced_arithmetic.h).
  double host_flops = 3e10;
  // How many times as long as the model says all workers compute.
  double compute_factor = 1;
  // By worker, whose machine has the same number. All others are as the above says.
  std::map<int, MachineDeviation> deviations;

  // Of one machine, and of the one with least.
  double GoodputOf(int machine) const;
  double LeastGoodput() const;
  // A worker's computing times, and the slowest one's, against what the model says.
  double ComputeFactorOf(int worker) const;
  double SlowestComputeFactor() const;

  // At which a lane rebuilds gradients.
  double LaneFlops() const { return devices_update || host_rebuilds ? host_flops : flops; }

  int MachineOfServer(int server) const { return colocated ? server : workers + server; }
  int machines() const;
};

// What the job says of its cluster. The job has been checked (proto/job_config.h). Of a balanced
// batch every worker has the part that makes all compute for the same time.
ClusterModel ClusterOf(const Job& job);

// Where the network has tiers, clusters on one switch that stand for it: what a machine has if all
// its traffic goes beyond the first tier's groups, and all others' does, too, then beyond the
// second one's, and so on. No machine has less, and ClusterOf none more. Empty where one switch
// joins all. A machine whose own link is slower than its share has that in all of them.
std::vector<ClusterModel> FartherClusters(const Job& job);

// Twice what the link carries in a round trip, so that it never runs dry while the next bytes are
// being handed over; but not so little that handing over costs more than it gains: twice what the
// kernel itself holds back (ZmqOptions.unsent_bytes). More would only delay what is urgent.
int64_t WindowBytes(const ClusterModel& cluster);

// Seconds of one pass of the worker's batch through one layer.
struct LayerTime {
  double forward = 0;
  double backward = 0;
};

// Whether the model says how long its layers compute.
bool TimesAreKnown(const ModelSpec& model);

// By layer: what the model says; else its multiply-adds, two operations each, at `flops`, with a
// backward pass of twice the forward one (its two products, by weights and by data, each cost as
// much); else, if nobody has counted those, as if each parameter were used once a sample.
std::vector<LayerTime> ComputeTimes(const ModelSpec& model, double flops);

}  // namespace poseidon
