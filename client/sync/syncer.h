// Syncer: synchronizes one bucket on one data lane; the paper's syncer, section 4.2, with its three
// steps. Send puts this worker's contribution on the wire, Receive takes what comes back, Move
// brings new values to where the engine reads them. Each scheme is one kind of syncer.
//
// A bucket whose chunks lie on several lanes has a syncer on each, so that none needs a lock; the
// bucket is fresh when all of them are.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/sync/kept_state.h"
#include "client/sync/model_memory.h"
#include "core/arithmetic/codec.h"
#include "core/arithmetic/update_rule.h"
#include "core/time.h"
#include "proto/bucket.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"
#include "transport/frame_status.h"

namespace poseidon {

// Bodies of gradients, sums, values and factors; not what the plan starts with. Written by the
// lane, read by anybody.
struct TrafficCounter {
  std::atomic<int64_t> bytes_sent{0};
  std::atomic<int64_t> bytes_received{0};
};

// What all syncers of a worker share.
struct SyncContext {
  // The plan that all workers of a simulation share.
  std::shared_ptr<const wire::PlanAndModel> shared_plan;
  const wire::PlanAndModel& plan;
  UpdateRule rule;
  std::shared_ptr<const ModelMemory> memory;
  // What the lanes keep for going back; null where the job does not recover.
  std::shared_ptr<KeptState> kept;
  // One a bucket, shared by its syncers.
  std::vector<TrafficCounter> traffic;
  // By the node at the other end; empty unless CountPeers was called.
  std::map<NodeId, TrafficCounter> peers;
  // Frames that lanes threw away: old, repeated or foreign.
  std::atomic<int64_t> dropped_frames{0};
  int place =
      0;  // among the plan's workers (proto/plan_members.h); what follows says worker for it
  uint64_t epoch = 0;
  Duration stall_deadline = Seconds(300);
  bool phantom = false;
  // Updates that workers make are left to their devices (client/staging/device_staging.h).
  bool devices_update = false;

  SyncContext(wire::PlanAndModel plan_and_model, std::shared_ptr<const ModelMemory> model_memory);
  SyncContext(std::shared_ptr<const wire::PlanAndModel> plan_and_model,
              std::shared_ptr<const ModelMemory> model_memory);
  int workers() const { return plan.plan().workers(); }
  // The plan's first iteration.
  int64_t start() const { return plan.plan().start_iteration(); }
  // The nodes at these places, and back; -1 for a node that takes no part, or is no worker.
  NodeId Worker(int at) const;
  NodeId Server(int at) const;
  int PlaceOf(const NodeId& worker) const;
  // Whether other workers, or servers, get from this one what the plan starts with.
  bool publishes_start() const;
  // The worker that the servers get it from.
  int publisher() const { return plan.plan().holders_size() > 0 ? plan.plan().holders(0) : 0; }
  // Whether optimizer state is among what the plan starts with. Not if it starts at iteration 0,
  // and not the mean gradient of rule MeanGradient: every worker has it, and takes it to a next
  // plan.
  bool starts_with_optimizer_state() const { return start() > 0 && rule.type != "MeanGradient"; }
  const BucketPlan& bucket(int index) const { return plan.plan().buckets(index); }
  // Whether the bucket's update is left to the devices, and its gradient is a float a parameter.
  // Not where the rule is deferred: the program makes the update from what is on the host.
  bool DevicesUpdateDense(int index) const;

  // A data frame of this worker for data lane `lane` of `to`.
  Envelope MakeFrame(MessageKind kind, const NodeId& to, int lane, int bucket, int chunk,
                     int64_t iteration, Payload body) const;
  // Before any traffic: counts that with each server and worker, too. Costs memory for each of
  // them, of which a simulation has many on each of many workers.
  void CountPeers();
  // A data frame of a bucket, which leaves or has come.
  void CountSent(int bucket_index, const Envelope& envelope);
  void CountReceived(int bucket_index, const Envelope& envelope);
  // Part of one of the memory's buffers, without a copy; for phantoms, whose buffers are empty, its
  // size only.
  Payload ViewOf(std::span<const float> buffer, int64_t offset, int64_t size) const;
  // Before UpdateRange, also of phantoms, of whole chunks: notes that these are of the next
  // version.
  void Keep(int bucket, int64_t iteration, int64_t offset, int64_t size) const;
  // Applies the update rule to floats [offset, offset + size) of a bucket whose gradients' sum,
  // times `gradient_scale`, is in `gradient` (of that size). In a job that recovers what
  // was there before stays (client/sync/model_memory.h), values perhaps in the gradient's place.
  // Nothing for phantoms, and where devices do it.
  void UpdateRange(int bucket, int64_t iteration, int64_t offset, std::span<const float> gradient,
                   float gradient_scale) const;
  // Likewise in slices, while this lives; for phantoms only the amount.
  SlicedArithmetic SlicedUpdateOf(int bucket, int64_t iteration, int64_t offset, int64_t size,
                                  std::span<const float> gradient, float gradient_scale) const;
};

// How many floats a bucket's servers keep for each parameter besides its value: optimizer state or,
// where the workers update, the codec's residual.
int FloatsKeptByServers(const SyncContext& context, const BucketPlan& bucket);

// Adds what the worker's lanes have counted: entries of the plan's buckets, bytes a peer, and
// dropped frames.
void AddTraffic(const SyncContext& context, wire::WorkerReport& report);

// Not thread-safe: lives on its lane. Work that a call leaves in the outbox may make the bucket
// fresh, as kComplete does: fresh_iteration() tells when it is done.
class Syncer {
 public:
  virtual ~Syncer() = default;

  // Worker 0 only: sends the values in memory to where the others get them from; unless the plan
  // starts at iteration 0, the optimizer state, too, which is in memory where the workers update,
  // and else in `optimizer_state`, that of the whole bucket.
  virtual FrameStatus PublishInitial(const Payload& optimizer_state, Outbox& outbox) = 0;
  // Sends the gradient (or factors) of `iteration`, which the engine has just put in memory.
  virtual FrameStatus Send(int64_t iteration, Outbox& outbox) = 0;
  // Takes a data frame that names this bucket.
  virtual FrameStatus Receive(const Envelope& envelope, Outbox& outbox) = 0;

  // The iteration for whose forward pass the values in memory are; before the initial ones the one
  // before the plan's first.
  virtual int64_t fresh_iteration() const = 0;
  // Whom it waits for; empty if it does not wait.
  virtual std::vector<NodeId> missing() const = 0;
};

// Whether the bucket has a part on the lane, and so a syncer.
bool HasPart(const Plan& plan, int bucket, int lane);
// The scheme's syncer for the bucket's part on the lane.
std::unique_ptr<Syncer> MakeSyncer(std::shared_ptr<SyncContext> context, int bucket, int lane);
// Indices of the bucket's chunks on the lane.
std::vector<int> ChunksOnLane(const BucketPlan& bucket, int lane);

}  // namespace poseidon
