// DeviceNet: WorkerNet of replicas on devices, each with parameters and gradients in its device's
// memory. DeviceStaging (client/staging/device_staging.h) moves both between there and the session,
// while the devices compute: calls put work in the devices' streams and return.
//
//   bound to the engine    values, of all layers one block
//   Backward's target      the layer's gradient, or its factors where the plan sends those; of the
//                          second pass on what is then added to it, which all layers share
//
// Each replica has its part of the factors' rows, and of these each pass its own.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "client/deferred/deferred_layers.h"
#include "client/staging/device_staging.h"
#include "client/staging/stream_trace.h"
#include "client/worker_session.h"
#include "device/local_reduction.h"
#include "worker/engine/compute_device.h"
#include "worker/worker_net.h"

namespace poseidon {

class DeviceNet : public WorkerNet {
 public:
  struct Replica {
    ComputeDevice* device = nullptr;
    Engine* engine = nullptr;
  };

  // The session has declared the model of all replicas together, and its buffers are pinned for
  // copies of a device of their kind. `reduction` is needed for several replicas; `deferred` is
  // null unless the model's rule is. All that is pointed to outlives this.
  DeviceNet(const std::vector<Replica>& replicas, LocalReduction* reduction, WorkerSession& session,
            int64_t most_passes, std::unique_ptr<DeferredLayers> deferred);
  // Waits until the devices have done what they were asked for, unless they have failed.
  ~DeviceNet() override;
  DeviceNet(const DeviceNet&) = delete;
  DeviceNet& operator=(const DeviceNet&) = delete;

  Engine& engine() override { return *replicas_[0].engine; }
  int64_t batch() const override;
  void SetValues(const NetValues& values) override;
  void PublishValues() override;

  void SetShare(const DataShare& share) override;
  void MeasureSteps(bool measures) override;
  void LoadBatch(int64_t pass) override;
  void WaitFresh(int layer) override;
  void Forward(int step) override;
  void Backward(int step, const PassOfIteration& pass) override;
  void GradientReady(int layer) override;
  bool runs_ahead() const override { return true; }
  void EndIteration() override;
  void SyncToHost() override;
  void PlanChanged() override;
  void Abandon() override;
  KeptStatistics& statistics() override { return statistics_; }

  float Loss() override;
  std::string FirstNotFinite() override;
  void Synchronize() override;
  TestResult Test() override;

 private:
  struct Layer {
    std::span<float> values;
    std::span<float> dense;  // these if the present plan needs them
    std::span<float> u;
    std::span<float> v;
  };
  struct Member {
    ComputeDevice* device = nullptr;
    Engine* engine = nullptr;
    std::vector<Layer> layers;
    std::span<float> pass_gradient;
    std::unique_ptr<DeviceEvent> forward_ends;  // of the last pass
    std::shared_future<float> loss;             // of a host device's last pass
    std::vector<DeviceMemory> value_memory;
    std::vector<DeviceMemory> gradient_memory;  // of all other spans
  };

  void AllocateValues(Member& member);
  // What the present plan needs.
  void AllocateGradients(Member& member);
  // What the plan before has needed. Engines keep no memory either, for later passes.
  void FreeGradients();
  void MakeStaging();
  // Tells the engines where staging puts something in the streams.
  void SetPauses();
  // Has all engines do it, each in its stream.
  void RunAll(const std::function<void(Engine& engine)>& work);
  // Until what they were asked for is in the streams, to which staging adds events.
  void AwaitLaunches();
  // Until all are done, even if one has failed.
  void WaitAll();
  // Does what throws that a device has failed; throws instead why, if it was its engine.
  void Guard(const std::function<void()>& call);
  // The layer's gradient on the replica's device: what the present plan sends of it.
  GradientBuffers IterationBuffers(const Member& member, int layer) const;
  // Has replicas on hosts look at their losses behind the forward pass: no gradient of a loss that
  // is no number leaves. GPUs would have to be waited for.
  void CheckLosses();
  // Behind the forward pass, before anything of the backward pass.
  void EndForward();
  // Waits for the forward pass, and not for what has been asked for since.
  void AwaitForward();
  // Until all is done that is in the devices' streams.
  void AwaitStreams(const std::string& waiting_for);
  // Until the moments have come, by the exchange's deadline.
  void Await(std::vector<ArrivalThread::Moment> moments, const std::string& waiting_for);
  // With a trace: what `work` puts in the first replica's stream is an entry on it.
  void Traced(const char* name, int step, const std::function<void()>& work);

  WorkerSession& session_;
  LocalReduction* reduction_;
  int64_t most_passes_;
  bool measures_steps_ = false;
  StreamTrace trace_;
  std::unique_ptr<DeferredLayers> deferred_;
  std::vector<Member> replicas_;
  std::vector<DeviceStream> streams_;
  KeptStatistics statistics_;
  std::unique_ptr<DeviceStaging> staging_;
  std::vector<std::unique_ptr<DeviceEvent>> ends_;  // of AwaitStreams, all streams
  size_t awaited_ = 0;                              // what `arrivals_` has yet to tell
  ArrivalThread arrivals_;  // ends before what it waits for; a device may hang
};

}  // namespace poseidon
