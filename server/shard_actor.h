// ShardActor: one data lane of a server, with the KV pairs and factor layers that lie on it.
//
// Answers worker 0's kInitialValues with kValues to every worker, and what the workers contribute
// to an iteration (kGradient of a KV pair, kFactors of a factor layer) with kValues or kGradientSum
// to those who can go on, without being asked. Where a plan does not start at iteration 0,
// optimizer state (kInitialOptimizerState) comes with the values; when a plan is left, worker 0
// asks for it (kFetchOptimizerState, answered by kOptimizerState). Frames of another epoch, of a
// past iteration, or that arrive twice are counted and dropped; those that no correct node could
// send are logged once per node, too. Workers that want a pair updated by different numbers end
// the job (server/settings_agreement.h).
//
// Where the plan has a second server keep a chunk, too, kValues go out when that one has it
// (server/replication.h). In a plan that goes on after a loss these servers have what it starts
// with, or get it from each other, when the training begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "core/awake_clock.h"
#include "core/time.h"
#include "core/trace.h"
#include "proto/wire.pb.h"
#include "server/accumulator_pool.h"
#include "server/copy_pool.h"
#include "server/factor_layer.h"
#include "server/kv_pair.h"
#include "server/replication.h"
#include "server/settings_agreement.h"
#include "server/shard_state.h"
#include "transport/actor.h"
#include "transport/dropped_frames.h"

namespace poseidon {

struct ShardOptions {
  int server = 0;  // place among the plan's servers (proto/plan_members.h)
  int lane = 0;    // data lane, from 0
  uint64_t epoch = 0;
  Duration stall_deadline = Seconds(300);
  // No floats are held; sizes and times are as with them (simulation).
  bool phantom = false;
  Trace* trace = nullptr;  // outlives the actor; may be null
  // Told the iteration of each gradient that is taken; outlives the actor, may be null.
  std::atomic<int64_t>* iteration = nullptr;
};

class ShardActor : public Actor {
 public:
  // Of what it has, the state must be that of the plan's first iteration. The plan and model must
  // come from the scheduler's planner.
  ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options,
             std::shared_ptr<ShardState> state);
  // Makes the state, and so all memory, itself.
  ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options);
  ~ShardActor() override;

  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

  // Floats of values that this lane owns.
  int64_t floats() const;
  int64_t dropped_frames() const { return dropped_frames_; }

 private:
  struct BucketInfo {
    std::string name;
    bool several_layers = false;
  };

  // Of the worker among the plan's; -1: it is none.
  int PlaceOf(const NodeId& worker) const;
  void MakeAgreements(const wire::PlanAndModel& plan);
  // "layer fc1", for people.
  std::string LabelOf(uint32_t bucket) const;

  // `sender` and what follows: places of workers.
  void OnPairFrame(const Envelope& envelope, int sender, const ChunkKey& key, KvPair& pair,
                   Outbox& outbox);
  void OnFactorLayerFrame(const Envelope& envelope, int sender, FactorLayer& layer, Outbox& outbox);
  // All factors are here. When the update is made, calls `answer` for each chunk.
  void UpdateLayer(uint32_t bucket, FactorLayer& layer, Outbox& outbox,
                   std::function<void(const ChunkKey&, Outbox&)> answer);
  // Of a rule of torch.optim's: by what numbers the gradient's worker wants the pair updated; of
  // others none. Nothing where the frame does not say it as it must. Throws ConfigError if another
  // worker has said otherwise.
  std::optional<std::vector<ParameterGroup>> GroupsFor(const Envelope& envelope,
                                                       const ChunkKey& key, const KvPair& pair);
  // shard_replication.cc. Of a chunk that two servers keep, from the other one of them.
  void OnServerFrame(const Envelope& envelope, Outbox& outbox);
  void OnFrameOfOwner(const Envelope& envelope, const ChunkKey& key, Outbox& outbox);
  void OnReplica(const Envelope& envelope, const ChunkKey& key, Outbox& outbox);
  void OnFactorsOfOwner(const Envelope& envelope, Outbox& outbox);
  void OnFrameOfBackup(const Envelope& envelope, const ChunkKey& key, Outbox& outbox);
  // To the owner: this lane has the chunk for the forward pass of its version.
  void Confirm(const ChunkKey& key, Outbox& outbox);
  // The training begins: what the servers have of the plan's start goes to who lacks it.
  void PublishStart(Outbox& outbox);
  // A chunk that is owned here has what the plan starts with: tells its backup, if it has one, else
  // all workers.
  void PublishStart(const ChunkKey& key, Outbox& outbox);
  // To the backup: the sum of all gradients, which has been applied; a worker's factor, with the
  // last of which its word is awaited.
  void Replicate(const ChunkKey& key, const KvPair& pair, const NodeId& backup,
                 const Payload& settings, Outbox& outbox);
  void Replicate(const Envelope& factor, int sender, const FactorLayer& layer, const NodeId& backup,
                 Outbox& outbox);
  void AnswerAll(const ChunkKey& key, Outbox& outbox);
  // Values, and optimizer state, of what is kept here of the chunk.
  void SendStart(const ChunkKey& key, const NodeId& server, Outbox& outbox);
  // Takes such a frame into what is kept here. True: now all of the chunk is.
  bool TakeStart(const Envelope& envelope, const ChunkKey& key);
  // What worker 0 gives or takes where a plan starts or is left; true if the frame was such a one.
  bool OnStateFrame(const Envelope& envelope, const ChunkKey& key, KvPair& pair, Outbox& outbox);
  bool OnStateFrame(const Envelope& envelope, FactorLayer& layer, Outbox& outbox);
  // Whether the state is what worker 0, which asks before its gradient of iteration `asked`, must
  // find: nothing is applied without that gradient. Under staleness it is what it is.
  bool IsSettled(int64_t asked, int64_t applied) const;
  void SendState(const ChunkKey& key, std::span<const float> state, int64_t floats,
                 int64_t iteration, Outbox& outbox);
  // Counts and traces a gradient or factor; whether it was taken.
  bool Accept(const Envelope& envelope, FrameStatus status, const Outbox& outbox);
  Payload PairAnswer(const KvPair& pair);
  void SendChunk(const FactorLayer& layer, const ChunkKey& key, Outbox& outbox);
  void Send(MessageKind kind, const ChunkKey& key, int worker, int64_t iteration,
            const Payload& body, Outbox& outbox);
  // `exchange`: the iteration whose gradients the frame belongs to.
  Envelope MakeFrame(MessageKind kind, const ChunkKey& key, const NodeId& to, int64_t iteration,
                     int64_t exchange) const;
  Payload ViewOf(std::span<const float> floats, int64_t size) const;

  // Of what belongs to the exchange of a bucket's gradients of iteration `exchange`.
  int64_t Priority(uint32_t bucket, int64_t exchange) const;

  // For all that waits.
  Time AwakeNow(const Outbox& outbox);
  Duration ScanInterval() const;
  // Since when a pair or layer waits for workers, if it does.
  template <typename Owner>
  std::optional<Time> WaitingSince(const Owner& owner) const;
  // What it waits for, and from whom.
  template <typename Owner>
  wire::Stalled StallOf(const ChunkKey& key, const Owner& owner) const;
  wire::Stalled StallOf(const Replication::Awaited& awaited) const;

  ShardOptions options_;
  int workers_;
  std::vector<int> worker_ranks_;  // by place
  bool copies_needed_;             // values may change while frames with them are under way
  bool fifo_;                      // priorities are all the same
  bool starts_with_state_;         // optimizer state is among what the plan starts with
  UpdateRule rule_;
  std::vector<BucketInfo> buckets_;
  std::shared_ptr<ShardState> state_;
  Replication replication_;
  std::map<ChunkKey, SettingsAgreement> agreements_;  // of a rule of torch.optim's
  std::unique_ptr<AccumulatorPool> pool_;
  std::unique_ptr<CopyPool> copies_;
  AwakeClock clock_;
  std::optional<Time> started_;  // when the training started
  std::atomic<int64_t> dropped_frames_{0};
  DroppedFrames dropped_{dropped_frames_};
};

}  // namespace poseidon
