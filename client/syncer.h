// Syncer: synchronises one layer (a bucket) on one data lane; the paper's syncer, section 4.2, with
// its three steps. Send puts this worker's contribution on the wire, Receive takes what comes back,
// Move brings new values to where the engine reads them. Each scheme is one kind of syncer.
//
// A layer whose KV pairs lie on several lanes has a syncer on each, so that none needs a lock; the
// layer is fresh when all of them are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/model_memory.h"
#include "core/time.h"
#include "core/update_rule.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

// Bodies of gradients, values and factors; not the initial values. Written by the lane, read by
// anybody.
struct TrafficCounter {
  std::atomic<int64_t> bytes_sent{0};
  std::atomic<int64_t> bytes_received{0};
};

// What all syncers of a worker share.
struct SyncContext {
  wire::PlanAndModel plan;
  UpdateRule rule;
  std::shared_ptr<const ModelMemory> memory;
  // One a layer, shared by its syncers.
  std::vector<TrafficCounter> traffic;
  // Frames that lanes threw away: old, repeated or foreign.
  std::atomic<int64_t> dropped_frames{0};
  int rank = 0;
  uint64_t epoch = 0;
  Duration stall_deadline = Seconds(300);
  bool phantom = false;

  SyncContext(wire::PlanAndModel plan_and_model, std::shared_ptr<const ModelMemory> model_memory);
  int workers() const { return plan.plan().workers(); }
};

// Fills in what the worker's lanes have counted: bytes a layer, and dropped frames.
void AddTraffic(const SyncContext& context, wire::WorkerReport& report);

// What became of a received frame.
enum class Reception {
  kTaken,    // more is needed
  kFresh,    // taken, and the layer's part is now up to date: see Syncer::fresh_iteration
  kOld,      // of a past iteration, or a repetition: ignored
  kForeign,  // nothing a correct peer would send: ignored
};

// Not thread-safe: lives on its lane.
class Syncer {
 public:
  virtual ~Syncer() = default;

  // Worker 0 only: sends the values in memory to where the others get them from.
  virtual Reception PublishInitial(Outbox& outbox) = 0;
  // Sends the gradient (or factors) of `iteration`, which the engine has just put in memory.
  virtual Reception Send(int64_t iteration, Outbox& outbox) = 0;
  // Takes a kValues, kFactors or kInitialValues frame that names this layer.
  virtual Reception Receive(const Envelope& envelope, Outbox& outbox) = 0;

  // The iteration for whose forward pass the values in memory are; -1 before the initial ones.
  virtual int64_t fresh_iteration() const = 0;
  // Whom it waits for; empty if it does not wait.
  virtual std::vector<NodeId> missing() const = 0;
};

}  // namespace poseidon
