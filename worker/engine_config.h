// EngineConfig: what a job trains with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/job_config.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_device.h"
#include "worker/trainer.h"

namespace poseidon {

// What a job trains with, before a worker knows its rank: files are read and checked, so that
// mistakes show at once.
class EngineConfig {
 public:
  virtual ~EngineConfig() = default;
  virtual TrainerOptions trainer_options() const = 0;
  // Throws ConfigError with what to do if no engine can compute on this GPU; none: on the CPU.
  virtual void CheckDevice(std::optional<int> /*cuda_device*/) const {}
  // The engine of one of a worker's replicas, for the thread that calls this and the device that it
  // computes on, which outlives it; null: in the host's memory.
  virtual std::unique_ptr<Engine> Make(int rank, int replica, EngineDevice* device) const = 0;
  // The model of all replicas of a worker as the job trains it: with what its recipe changes.
  virtual ModelSpec ModelOf(const Engine& engine) const { return engine.model(); }
  // What nobody who waits for the end of such a training, which goes on `from` a snapshot if there
  // is one, expects, a sentence each.
  virtual std::vector<std::string> surprises(const std::optional<FoundSnapshot>& /*from*/) const {
    return {};
  }
  // Whether the job asks for a snapshot to go on from.
  virtual bool wants_snapshot() const { return false; }
  // The snapshot that the job goes on from, if any. Throws DataError.
  virtual std::optional<FoundSnapshot> FindStart() const { return std::nullopt; }
};

}  // namespace poseidon
