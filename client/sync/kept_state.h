// KeptState: what a worker keeps so that it can go back by one iteration after the job has lost a
// node: of each chunk that it updates itself, the values and optimizer state before the last
// update, and which iteration's forward pass the present ones are for.
//
// Why one is enough. A worker updates a chunk for iteration t + 1 only with every worker's gradient
// of t, so after every worker has finished the forward pass of t, so after every worker had all
// values for t. At any moment, then, all versions of all chunks at all workers that have values at
// all are t or t + 1, for one t; and nobody has sent more than gradients of t + 1, which without
// those of a lost worker update nothing. All can go back to t.
//
// What servers update they keep likewise, and send all workers once more (server/replication.h). Of
// such chunks it is only known here that they have come.
//
// Thread safety: different lanes update different chunks at the same time. The rest may be called
// when no lane does; docs/recovery.md says how that is brought about.
#pragma once

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
  // Memory for what is kept of the plan's buckets. With `phantom` only versions are kept. Throws
  // Error if the machine does not have the memory.
  KeptState(std::shared_ptr<const wire::PlanAndModel> plan,
            std::shared_ptr<const ModelMemory> memory, bool phantom);

  // The chunk's values are here for the forward pass of `iteration`, without any before.
  void Arrived(int bucket, int chunk, int64_t iteration);
  // Likewise all chunks.
  void AllArrived(int64_t iteration);
  // Floats [offset, offset + size) of a bucket, which are whole chunks, are about to be updated
  // with the gradients of `iteration`: keeps them.
  void BeforeUpdate(int bucket, int64_t offset, int64_t size, int64_t iteration);

  // All chunks have arrived.
  bool complete() const;
  // The oldest version of all chunks that the worker updates; nullopt if some have not arrived, or
  // there are none.
  std::optional<int64_t> OldestVersion() const;
  // All chunks are for the forward pass of `iteration` again: the oldest version, or the one after
  // it if that is what all have.
  void GoBack(int64_t iteration);
  // Nothing here counts any more.
  void Forget();

  // Floats allocated.
  int64_t floats() const { return static_cast<int64_t>(floats_.size()); }

 private:
  struct KeptChunk {
    int64_t offset = 0;  // in the bucket's floats
    int64_t size = 0;
    std::optional<int64_t> version;
    // What it was before: values, then optimizer state; empty for phantoms.
    std::span<float> before;
  };

  bool UpdatesItself(size_t bucket) const;
  std::span<float> Values(int bucket, const KeptChunk& chunk) const;
  std::span<float> OptimizerState(int bucket, const KeptChunk& chunk) const;

  std::shared_ptr<const wire::PlanAndModel> plan_;
  std::shared_ptr<const ModelMemory> memory_;
  int64_t state_;  // floats of optimizer state for each parameter
  std::vector<std::vector<KeptChunk>> buckets_;
  std::vector<float> floats_;
};

}  // namespace poseidon
