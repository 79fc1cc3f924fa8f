// Ring, halving-doubling and torus all-reduce: the workers average a bucket's gradients among
// themselves, chunk by chunk, and each updates its parameters. Which messages that takes is in
// collectives/.
#pragma once

#include <vector>

#include "client/sync/initial_broadcast.h"
#include "client/sync/schedule_runner.h"
#include "client/sync/syncer.h"

namespace poseidon {

class AllReduceSyncer : public Syncer {
 public:
  // For the chunks of `bucket` that lie on `lane`.
  AllReduceSyncer(std::shared_ptr<SyncContext> context, int bucket, int lane);

  // Worker 0's own values are fresh at once.
  FrameStatus PublishInitial(const Payload& optimizer_state, Outbox& outbox) override;
  FrameStatus Send(int64_t iteration, Outbox& outbox) override;
  FrameStatus Receive(const Envelope& envelope, Outbox& outbox) override;
  int64_t fresh_iteration() const override { return fresh_iteration_; }
  std::vector<NodeId> missing() const override;

 private:
  struct Part {
    int chunk = 0;  // index in the bucket's plan
    ScheduleRunner runner;
    bool updated = true;  // the iteration that the runner has done is in the values
  };

  FrameStatus ReceiveReduce(const Envelope& envelope, Outbox& outbox);
  void SendFrames(const Part& part, int64_t iteration, Outbox& outbox);
  // Updates the chunk if its all-reduce is done; kComplete if it was the last.
  FrameStatus FinishPart(Part& part);
  const BucketPlan& plan() const { return context_->bucket(bucket_); }

  std::shared_ptr<SyncContext> context_;
  int bucket_;
  int lane_;
  InitialBroadcast initial_;
  std::vector<Part> parts_;  // by chunk, ascending
  int outstanding_ = 0;      // parts whose all-reduce has begun and is not done
  int64_t fresh_iteration_;
  std::vector<ReduceFrame> frames_;  // kept for its memory
};

}  // namespace poseidon
