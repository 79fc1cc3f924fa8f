// How far a simulation is, and that it takes no more memory than there is.
#pragma once

#include <cstdint>
#include <functional>

#include "core/process/memory.h"
#include "planner/job_plan.h"
#include "proto/job.pb.h"
#include "transport/actor.h"

namespace poseidon {

// How far a simulation is.
struct SimulationProgress {
  int64_t messages = 0;  // of all kinds, that have arrived
  // Of the training's data messages those that have arrived, from 0 to 1; the rest of the time is
  // about in proportion. 0 while processes join and the scheduler plans.
  double share = 0;
};

// What a simulation does beside simulating.
struct SimulationControl {
  // Called now and then, some ten times a second; may throw, which ends the simulation.
  std::function<void(const SimulationProgress&)> progress = {};
  // Bytes that it may take. It is refused as soon as it is known to need more.
  int64_t memory = AvailableMemory();
  // How many simulations the process does at a time. What it is seen to take is of all of them.
  int simulations = 1;
  // Makes the plan; empty: PlanJob.
  JobPlanner planner = {};
};

// Sees every message that arrives, and from that how far the simulation is and what it takes.
class SimulationWatch {
 public:
  // What is referred to outlives this. Throws as OnMessage.
  SimulationWatch(const SimulationControl& control, const Cluster& cluster, int layers,
                  int64_t iterations);

  void OnPlan(const Plan& plan);
  // Throws Error with kFailure if the simulation takes more memory than there is, or all of the
  // process do.
  void OnMessage(const Envelope& envelope);

 private:
  double Share() const;
  void Check(double bytes) const;
  // What the process has taken since this simulation began.
  void CheckTaken(double bytes) const;

  const SimulationControl& control_;
  const Cluster& cluster_;
  int64_t iterations_;
  double node_memory_;
  int64_t memory_before_;
  Time next_{};  // of the real clock: when to look next
  int64_t messages_ = 0;
  int64_t data_messages_ = 0;
  double expected_ = 0;  // data messages of the whole training
};

}  // namespace poseidon
