// A training over real sockets, all its nodes in one process, by the actors that SimulatedCluster
// runs in virtual time.
#pragma once

#include <functional>
#include <memory>

#include "client/worker_session.h"
#include "device/device.h"
#include "poseidon/session.h"
#include "tests/simulation/training_case.h"

namespace poseidon {

// What a worker does between WorkerSession::Begin and WorkerSession::Finish; returns the parameters
// that it ends with.
using WorkerLoop = std::function<Parameters(WorkerSession& session, const TrainingWork& work)>;
// Makes the device that a worker's memory is pinned for.
using DeviceMaker = std::function<std::unique_ptr<Device>()>;

// All that a worker does, from joining to finishing; returns the parameters that it ends with.
using WorkerProcess = std::function<Parameters(const WorkerSessionOptions& options)>;

// The job's scheduler and servers, and each worker in a thread of its own. Worker 0's parameters;
// the others' must be the same bits. With `next` the job goes over to that plan after the first
// iteration or a little later. `reports`: gets what each worker reports of its training.
Parameters RunOverSockets(Job job, const wire::PlanAndModel* next, const WorkerProcess& worker,
                          std::vector<wire::WorkerReport>* reports = nullptr);

// Likewise of programs that use the front door. They catch what they throw, and end the job; how,
// as the scheduler knows it.
using WorkerProgram = std::function<void(const SessionOptions& options)>;
wire::End RunProgramsOverSockets(const Job& job, const WorkerProgram& program);

// With values and gradients in the session's own memory.
Parameters TrainOnHosts(WorkerSession& session, const TrainingWork& work);

// The same with workers that all do `loop`.
Parameters TrainOverSockets(const SimulatedClusterOptions& options,
                            const wire::PlanAndModel* next = nullptr,
                            const WorkerLoop& loop = TrainOnHosts,
                            const DeviceMaker& make_device = nullptr);

}  // namespace poseidon
