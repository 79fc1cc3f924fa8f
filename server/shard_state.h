// ShardState: what one lane of a server keeps: the KV pairs and factor layers that it owns, and
// those by which it backs up other servers'. It outlives the lane's actor where the job goes on
// after a loss: the next plan's takes over what it needs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "proto/wire.pb.h"
#include "server/chunk_state.h"
#include "server/factor_layer.h"
#include "server/kv_pair.h"
#include "server/zeroed_memory.h"

namespace poseidon {

// Indices in the plan.
struct ChunkKey {
  uint32_t bucket = 0;
  uint32_t chunk = 0;
  auto operator<=>(const ChunkKey&) const = default;
};

// Not thread-safe: its lane's, or the control lane's while the lane is held.
class ShardState {
 public:
  struct Options {
    int server = 0;  // place among the plan's servers
    int lane = 0;    // data lane, from 0
    bool phantom = false;
    bool recovers = false;  // the job may go back
  };

  // Makes all memory. The plan and model must come from the scheduler's planner.
  ShardState(const wire::PlanAndModel& plan, const UpdateRule& rule, const Options& options);

  std::map<ChunkKey, KvPair>& pairs() { return pairs_; }
  std::map<uint32_t, FactorLayer>& factor_layers() { return factor_layers_; }  // by bucket
  // The copies of what others own.
  std::map<ChunkKey, KvPair>& pair_backups() { return pair_backups_; }
  std::map<uint32_t, FactorLayer>& factor_layer_backups() { return factor_layer_backups_; }
  // Whether the chunk, which is kept here, is another's.
  bool is_backup(const ChunkKey& key) const;
  // Of all of them; shared with frames on their way out.
  const std::shared_ptr<ZeroedMemory>& memory() const { return memory_; }
  // Floats of the largest KV pair; how many sums of gradients can be gathered at once.
  int64_t largest_pair() const;
  size_t sums() const;
  // Floats of values that the lane owns.
  int64_t owned_floats() const;

  // Of a chunk that is kept here, as an own one or as a copy: see KvPair.
  int64_t size(const ChunkKey& key) const;
  std::optional<int64_t> version(const ChunkKey& key) const;
  bool Initialize(const ChunkKey& key, const Payload& values);
  bool InitializeState(const ChunkKey& key, const Payload& state);

  // Adds the chunks that it keeps and has.
  void AddTo(wire::Holdings& holdings) const;
  // What it has of a chunk, its own or a copy, for the forward pass of `iteration`.
  std::optional<ChunkState> At(const ChunkKey& key, int64_t iteration) const;
  // In a plan with holders: takes what the plan starts with from what the lane kept under an
  // earlier plan, of the same layout, all but what other servers send. What a lost server's codec
  // had not sent is lost: the one in its place begins with nothing owed.
  void TakeOver(const ShardState& before, const Plan& plan);

 private:
  // What the plan gives to this lane: a KV pair, its own or a copy, or a whole bucket as a factor
  // layer.
  struct Place {
    ChunkKey key;  // chunk 0 of a factor layer
    bool backup = false;
    int64_t memory_floats = 0;
  };

  std::vector<Place> Places(const wire::PlanAndModel& plan) const;
  void Make(const wire::PlanAndModel& plan, const Place& place);
  // Null: the chunk is of no pair here, but of a factor layer.
  KvPair* PairOf(const ChunkKey& key);
  const KvPair* PairOf(const ChunkKey& key) const;
  // Null: no factor layer is here.
  FactorLayer* LayerOf(uint32_t bucket);
  const FactorLayer* LayerOf(uint32_t bucket) const;

  UpdateRule rule_;
  Options options_;
  int open_iterations_;  // of a pair, at once
  std::shared_ptr<ZeroedMemory> memory_;
  std::map<ChunkKey, KvPair> pairs_;
  std::map<ChunkKey, KvPair> pair_backups_;
  std::map<uint32_t, FactorLayer> factor_layers_;
  std::map<uint32_t, FactorLayer> factor_layer_backups_;
};

}  // namespace poseidon
