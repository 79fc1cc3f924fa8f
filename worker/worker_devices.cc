#include "worker/worker_devices.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/program.h"
#include "worker/device_net.h"
#include "worker/host_net.h"

namespace poseidon {
namespace {

constexpr const char* kStartAgain =
    "; the job goes on when another process takes this worker's place: start it again";

template <typename Call>
bool Throws(const Call& call) {
  try {
    call();
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

// Whether it is a device that has failed, and so ends the training.
bool OneHasFailed(const WorkerDevices& devices) {
  const auto& all = devices.devices;
  const auto failed = [](const auto& device) { return Throws([&] { device->device().Check(); }); };
  // A host's device fails of what its engine throws, too, and then those that wait for it.
  const auto threw = [](const auto& device) { return Throws([&] { device->RethrowFromWork(); }); };
  return std::ranges::any_of(all, failed) && std::ranges::none_of(all, threw);
}

}  // namespace

void WorkerDevices::Describe(WorkerSessionOptions& options) const {
  if (devices.empty()) return;
  options.allocate = PinnedFor(devices[0]->device());
  options.devices_update = devices[0]->factor_update() != nullptr;
  options.devices_pack = devices[0]->packer() != nullptr;
}

WorkerDevices MakeHostDevices(int count) {
  WorkerDevices made;
  if (count == 1) return made;
  std::vector<HostDevice*> hosts;
  for (int i = 0; i < count; ++i) {
    auto device = std::make_unique<HostComputeDevice>(
        HostDevice::Options{.name = "CPU replica " + std::to_string(i)});
    hosts.push_back(&device->device());
    made.devices.push_back(std::move(device));
  }
  made.reduction = std::make_unique<HostLocalReduction>(std::move(hosts));
  return made;
}

int FirstDevice(const Job& job, int wanted_rank) {
  return std::max(wanted_rank, 0) * job.cluster().devices_per_worker();
}

void CheckEngines(const EngineConfig& plan, const WorkerDevices& devices) {
  for (const auto& device : devices.devices) plan.CheckDevice(device->cuda_device());
}

std::vector<std::unique_ptr<Engine>> MakeEngines(const EngineConfig& plan, int rank,
                                                 const WorkerDevices& devices) {
  std::vector<std::unique_ptr<Engine>> engines;
  if (devices.devices.empty()) engines.push_back(plan.Make(rank, 0, nullptr));
  for (const auto& device : devices.devices) {
    const auto replica = static_cast<int>(engines.size());
    std::unique_ptr<Engine>& engine = engines.emplace_back();
    device->RunAndWait([&] { engine = plan.Make(rank, replica, device->engine_device()); });
  }
  return engines;
}

std::unique_ptr<WorkerNet> MakeWorkerNet(const std::vector<std::unique_ptr<Engine>>& engines,
                                         const WorkerDevices& devices, WorkerSession& session,
                                         const ModelSpec& model, const TrainerOptions& options) {
  std::unique_ptr<DeferredLayers> deferred;
  if (model.update_rule().deferred()) {
    deferred = std::make_unique<DeferredLayers>(
        session.protocol(), model, options.deferred,
        [passes = options.passes](int64_t iteration) { return passes.PassesOf(iteration); });
  }
  const int64_t most_passes = options.passes.most();
  if (devices.devices.empty()) {
    return std::make_unique<HostNet>(*engines[0], session, most_passes, std::move(deferred));
  }
  std::vector<DeviceNet::Replica> replicas;
  for (size_t i = 0; i < engines.size(); ++i) {
    replicas.push_back({devices.devices[i].get(), engines[i].get()});
  }
  return std::make_unique<DeviceNet>(replicas, devices.reduction.get(), session, most_passes,
                                     std::move(deferred));
}

void FailTraining(const std::string& name, const WorkerDevices& devices, WorkerSession& session,
                  const Error& error) {
  if (session.recovers() && OneHasFailed(devices)) {
    session.GiveUp(error);
    session.Stop();
    EndAtOnce(name, Error(ExitCode::kGivenUp, std::string(error.what()) + kStartAgain));
  }
  session.Fail(error);
  if (devices.devices.empty()) return;
  session.Stop();
  EndAtOnce(name, error);
}

}  // namespace poseidon
