// KeptState: what a worker keeps so that it can go back by one iteration after the job has lost a
// node: of each chunk that it updates itself, which iteration's forward pass its values are for.
// What they and the optimizer state were before the last update each update leaves in the model's
// memory (client/sync/model_memory.h).
//
// Why one is enough. A worker updates a chunk for iteration t + 1 only with every worker's gradient
// of t, so after every worker has finished the forward pass of t, so after every worker had all
// values for t. At any moment, then, all versions of all chunks at all workers that have values at
// all are t or t + 1, for one t; and nobody has sent more than gradients of t + 1, which without
// those of a lost worker update nothing. All can go back to t.
//
// Where updates are deferred (core/arithmetic/update_rule.h) the gradient of t changes no more than
// the state's share of it, and a chunk is of version t + 1 when the training program has made the
// update. What is kept is what was there before the gradient.
//
// What a codec with error feedback has not sent goes back, too. A worker may have sent gradients of
// t + 1 when all go back to t, so of that it keeps what there was before each of the last two.
//
// What servers update they keep likewise, and send all workers once more (server/replication.h). Of
// such chunks it is only known here that they have come.
//
// Beside the model a net may have statistics, which the program gets from another worker's when the
// plan has started (kStatistics). Whoever still awaits them can't be one that others go on from.
//
// Thread safety: different lanes update different chunks at the same time. Updated() and
// SetAwaitsStatistics() are the training thread's. OldestVersion() may be called meanwhile and then
// says that version or the one before, to either of which the worker can go back; and complete(),
// of which either answer is right then. The rest may be called when no lane updates;
// docs/recovery.md says how that is brought about.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/sync/model_memory.h"
#include "proto/wire.pb.h"

namespace poseidon {

class KeptState {
 public:
  // `memory` is of a job that recovers. With `phantom` only versions are kept. Throws Error if the
  // machine does not have the memory for what codecs have not sent.
  KeptState(std::shared_ptr<const wire::PlanAndModel> plan,
            std::shared_ptr<const ModelMemory> memory, bool phantom);

  // The chunk's values are here for the forward pass of `iteration`, without any before.
  void Arrived(int bucket, int chunk, int64_t iteration);
  // Likewise all chunks.
  void AllArrived(int64_t iteration);
  // Floats [offset, offset + size) of a bucket, which are whole chunks, are about to be updated
  // with the gradients of `iteration`.
  void BeginUpdate(int bucket, int64_t offset, int64_t size, int64_t iteration);
  // The codec of the bucket is about to pack the chunk's gradient of `iteration`: keeps what it has
  // not sent of those before.
  void BeforeSend(int bucket, int chunk, int64_t iteration);
  // Deferred rules: the layer's update is made, its values are for the forward pass of `iteration`.
  void Updated(int layer, int64_t iteration);
  // Whether the program has still to get what its net has beside the model.
  void SetAwaitsStatistics(bool awaits) { awaits_statistics_ = awaits; }

  // All chunks have arrived, and no statistics are awaited.
  bool complete() const;
  // The oldest version of all chunks that the worker updates; nullopt if some have not arrived, or
  // there are none.
  std::optional<int64_t> OldestVersion() const;
  // All chunks are for the forward pass of `iteration` again: the oldest version, or the one after
  // it if that is what all have.
  void GoBack(int64_t iteration);
  // Nothing here counts any more: the values for the forward pass of `iteration` are still to come.
  void Forget(int64_t iteration);

 private:
  struct KeptChunk {
    int64_t offset = 0;  // in the bucket's floats
    int64_t size = 0;
    std::optional<int64_t> version;  // deferred: or of the next one, but for the update
    // Of a codec with error feedback: the first iteration whose gradient has not been sent.
    int64_t sent = 0;
  };

  struct KeptBucket {
    bool updates_itself = false;
    std::vector<KeptChunk> chunks;
    // Of a codec with error feedback: what had not been sent before the gradient of t was, at t
    // % 2.
    std::array<std::span<float>, 2> unsent;
  };

  void SetUpdated(int64_t iteration);
  void Allocate();
  static void GoBack(const KeptBucket& bucket, const BucketMemory& memory, int64_t iteration,
                     KeptChunk& chunk);

  std::shared_ptr<const wire::PlanAndModel> plan_;
  std::shared_ptr<const ModelMemory> memory_;
  std::vector<KeptBucket> buckets_;
  // Deferred rules, by layer: the iteration for whose forward pass its values are.
  std::vector<std::atomic<int64_t>> updated_;
  std::atomic<bool> awaits_statistics_{false};
  std::vector<float> floats_;  // of what was not sent
};

}  // namespace poseidon
