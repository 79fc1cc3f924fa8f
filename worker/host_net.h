// HostNet: WorkerNet of one engine, which computes on the training thread in the session's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/deferred/deferred_layers.h"
#include "client/worker_session.h"
#include "worker/pass_schedule.h"
#include "worker/worker_net.h"

namespace poseidon {

class HostNet : public WorkerNet {
 public:
  // The session has declared the engine's model. `deferred` is null unless the model's rule is. All
  // outlive this.
  HostNet(Engine& engine, WorkerSession& session, int64_t most_passes,
          std::unique_ptr<DeferredLayers> deferred);

  Engine& engine() override { return engine_; }
  int64_t batch() const override { return engine_.batch(); }
  void SetValues(const NetValues& values) override { engine_.SetValues(values); }
  void PublishValues() override {}

  void SetShare(const DataShare& share) override { engine_.SetShare(share); }
  void MeasureSteps(bool) override {}
  void LoadBatch(int64_t pass) override { engine_.LoadBatch(pass); }
  void WaitFresh(int layer) override;
  void Forward(int step) override;
  void Backward(int step, const PassOfIteration& pass) override;
  void GradientReady(int layer) override { session_.GradientReady(layer); }
  bool runs_ahead() const override { return false; }
  void EndIteration() override {}
  void SyncToHost() override {}  // nothing is elsewhere
  void PlanChanged() override;
  void Abandon() override {}
  KeptStatistics& statistics() override { return statistics_; }

  float Loss() override { return engine_.loss(); }
  std::string FirstNotFinite() override { return engine_.FirstNotFinite(); }
  void Synchronize() override { engine_.Synchronize(); }
  TestResult Test() override { return engine_.Test(); }

 private:
  void BindParameters();
  void Trace(const char* name, int step, Time begin);

  Engine& engine_;
  WorkerSession& session_;
  int64_t most_passes_;
  std::unique_ptr<DeferredLayers> deferred_;
  KeptStatistics statistics_;
  std::vector<float> pass_gradient_;  // what one pass of several adds to a layer's
};

}  // namespace poseidon
