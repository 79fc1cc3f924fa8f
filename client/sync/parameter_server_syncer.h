// PS: a bucket's KV pairs go to the servers that own them; new values come back, or, where the
// workers update, the sum of all workers' gradients.
#pragma once

#include <optional>
#include <vector>

#include "client/sync/initial_broadcast.h"
#include "client/sync/syncer.h"

namespace poseidon {

class ParameterServerSyncer : public Syncer {
 public:
  // For the chunks of `bucket` that lie on `lane` (a data lane, from 0).
  ParameterServerSyncer(std::shared_ptr<SyncContext> context, int bucket, int lane);

  // Worker 0, too, waits for the servers to send the values back.
  FrameStatus PublishInitial(const Payload& optimizer_state, Outbox& outbox) override;
  FrameStatus Send(int64_t iteration, Outbox& outbox) override;
  FrameStatus Receive(const Envelope& envelope, Outbox& outbox) override;
  int64_t fresh_iteration() const override { return fresh_iteration_; }
  std::vector<NodeId> missing() const override;

  // This worker's contribution to an iteration is on its way: the servers' answers are awaited.
  void Await() { waiting_ = true; }

 private:
  FrameStatus ReceiveStart(const Envelope& envelope, Outbox& outbox);
  // One of the things awaited has come.
  FrameStatus CountDown();
  Payload GradientBody(int c, int64_t iteration);
  void Move(const Envelope& envelope, const Chunk& chunk);
  // A sum of gradients, which answers one where the workers update; else values.
  bool IsSum(const Envelope& envelope) const;
  // Whether the plan's first values come from the servers; else some workers have them.
  bool values_from_servers() const;
  // Whether the servers have what the plan starts with: after a loss, where they update.
  bool servers_hold() const;
  // Whether a frame that answers a gradient, or brings initial values, has the chunk's size.
  bool Fits(const Envelope& envelope, const Chunk& chunk) const;
  const BucketPlan& plan() const { return context_->bucket(bucket_); }
  const BucketMemory& memory() const { return context_->memory->bucket(bucket_); }

  std::shared_ptr<SyncContext> context_;
  int bucket_;
  int lane_;
  Codec codec_;
  std::vector<int> chunks_;    // indices in the bucket's plan
  std::vector<bool> arrived_;  // by index in the bucket's plan
  // Where the workers update: brings what the plan starts with and does not come from the servers.
  std::optional<InitialBroadcast> from_workers_;
  // Chunks of the awaited iteration that have not come; before the first, also from_workers_.
  int outstanding_ = 0;
  bool waiting_ = true;  // at first for the initial values, which come without being asked for
  int64_t fresh_iteration_;
};

}  // namespace poseidon
