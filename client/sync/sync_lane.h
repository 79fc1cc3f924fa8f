// SyncLane: the actor of one data lane of a worker. Hands envelopes to the syncers of its buckets
// and tells the application when a bucket's part is fresh.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "client/sync/syncer.h"
#include "core/awake_clock.h"
#include "core/trace.h"
#include "transport/actor.h"
#include "transport/dropped_frames.h"

namespace poseidon {

class SyncLane : public Actor {
 public:
  // `lane` counts data lanes from 0. `trace` outlives the actor and may be null.
  SyncLane(std::shared_ptr<SyncContext> context, int lane, Trace* trace);

  void OnStart(Outbox& outbox) override;
  // From the control lane: kTraining. From the application: kGradientReady (bucket, iteration,
  // settings), kPublishInitial (bucket, optimizer state as body), kCollectOptimizerState (bucket).
  // From other nodes: kValues, kGradientSum, kFactors, kReduce, kInitialValues,
  // kInitialOptimizerState, kOptimizerState, kStatistics. To the application: kBucketFresh (bucket,
  // iteration, happened), and each kOptimizerState asked for and kStatistics, as they came.
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  struct Entry {
    std::unique_ptr<Syncer> syncer;
    std::optional<Time> waiting_since;  // by clock_
    std::optional<Time> began;          // the newest exchange of gradients, for a trace
    int64_t bytes = 0;                  // with a trace: sent and received since then
  };

  // With staleness the last exchange takes as long as the slowest worker has left to compute. Who
  // hangs is for the servers to notice, which hear from it, and what is lost for the scheduler,
  // when all workers wait.
  bool AwaitsTheSlowest(int bucket, const Entry& entry) const;
  // Whether it has waited for longer than anybody should.
  bool IsStalled(int bucket, const Entry& entry, Time now) const;
  void AwaitInitialValues(const Outbox& outbox);
  Duration ScanInterval() const;
  // For all that waits.
  Time AwakeNow(const Outbox& outbox);
  void FetchOptimizerState(const Envelope& envelope, Entry& entry, Outbox& outbox);
  void OnOptimizerState(const Envelope& envelope, Entry& entry, Outbox& outbox);
  // Of the worker that is to send its own; for the program.
  void OnStatistics(const Envelope& envelope, Outbox& outbox);
  // Chunks of the bucket whose kOptimizerState is awaited.
  std::set<int> Fetching(int bucket) const;
  // Whom a bucket's part waits for.
  std::vector<NodeId> Missing(int bucket, const Entry& entry) const;
  wire::Stalled StallOf(int bucket, const Entry& entry) const;
  void OnFrame(FrameStatus status, const Envelope& envelope, Outbox& outbox);
  // Work that the bucket's syncer has left may make it fresh, too.
  void FollowWork(int bucket, Outbox& outbox);
  // The bucket's part is fresh.
  void Complete(int bucket, Outbox& outbox);
  // What the plan starts with is here of the bucket.
  void KeepStart(int bucket);
  // That what goes to other nodes is sent, until it has left.
  void TraceSend(Outbox& outbox);
  // What `envelope` brought about now, and the bytes that it moved.
  void TraceMoment(const char* name, const Envelope& envelope, int64_t bytes, const Outbox& outbox);
  // The exchange of a bucket's part that is complete now.
  void TraceExchange(const Envelope& fresh, const Entry& entry);

  std::shared_ptr<SyncContext> context_;
  int lane_;
  Trace* trace_;
  std::vector<Entry> buckets_;  // by bucket; without a syncer: has no part on this lane
  // By bucket: chunks whose kOptimizerState is awaited, if any.
  std::map<int, std::set<int>> fetching_;
  AwakeClock clock_;
  DroppedFrames dropped_;
};

}  // namespace poseidon
