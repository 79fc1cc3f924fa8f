// WorkerDevices: what a worker's replicas compute on, as its job says (training.device,
// cluster.devices_per_worker).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/worker_session.h"
#include "core/error.h"
#include "device/local_reduction.h"
#include "proto/job_config.h"
#include "worker/engine/compute_device.h"
#include "worker/engine_config.h"
#include "worker/worker_net.h"

namespace poseidon {

struct WorkerDevices {
  // None: the one engine computes on the training thread.
  std::vector<std::unique_ptr<ComputeDevice>> devices;
  std::unique_ptr<LocalReduction> reduction;  // of several

  // Sets what WorkerSessionOptions says of devices.
  void Describe(WorkerSessionOptions& options) const;
};

// On the CPU. GPUs: worker/cuda_compute_device.h.
WorkerDevices MakeHostDevices(int count);

// The first of the GPUs of a worker that says of itself only which rank it asks for, -1 for any: as
// if all workers before it were on its machine, which is right for `poseidon run` and for machines
// with equally many consecutive ranks.
int FirstDevice(const Job& job, int wanted_rank);

// Throws ConfigError with what to do if the plan's engines can't compute on these devices.
void CheckEngines(const EngineConfig& plan, const WorkerDevices& devices);

// A replica of the net on each device.
std::vector<std::unique_ptr<Engine>> MakeEngines(const EngineConfig& plan, int rank,
                                                 const WorkerDevices& devices);

// The net of a session that has declared `model`, which outlives the net, as all do.
std::unique_ptr<WorkerNet> MakeWorkerNet(const std::vector<std::unique_ptr<Engine>>& engines,
                                         const WorkerDevices& devices, WorkerSession& session,
                                         const ModelSpec& model, const TrainerOptions& options);

// Tells the job of the error that ends its training. Where the worker has devices the process then
// ends, as program `name`, with the error's exit code and without another destructor: those of a
// net wait for its devices, one of which may never answer again, and what libraries give back to a
// device that has failed may throw.
// Where a device has failed and the job goes on after a loss nobody is told, and the exit code is
// kGivenUp: to the others the worker is lost, and who keeps daemons starts another.
void FailTraining(const std::string& name, const WorkerDevices& devices, WorkerSession& session,
                  const Error& error);

}  // namespace poseidon
