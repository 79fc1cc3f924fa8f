#include "server/shard_state.h"

#include <algorithm>
#include <utility>

#include "proto/bucket.h"

namespace poseidon {
namespace {

FactorLayer::Shape ShapeOf(const wire::PlanAndModel& plan, const BucketPlan& bucket) {
  const InnerProductSpec& product = plan.model().layers(bucket.first_layer()).inner_product();
  return {.workers = plan.plan().workers(),
          .outputs = product.outputs(),
          .inputs = product.inputs(),
          .rows = product.rows(),
          .floats = FloatCount(bucket),
          .start_iteration = plan.plan().start_iteration(),
          .backed_up = bucket.chunks(0).has_backup()};
}

KvPair::Options PairOptions(const wire::PlanAndModel& plan, const BucketPlan& bucket,
                            bool is_backup, bool recovers) {
  return {.workers = plan.plan().workers(),
          .deterministic = plan.plan().deterministic(),
          .staleness = plan.plan().staleness(),
          .iterations = plan.model().iterations(),
          .update_at_workers = bucket.update_at_workers(),
          .codec = CodecOf(plan.plan(), bucket),
          .workers_hold_values = bucket.update_at_workers() && !plan.plan().holders().empty(),
          .start_iteration = plan.plan().start_iteration(),
          .backed_up = bucket.chunks(0).has_backup(),
          .is_backup = is_backup,
          .keeps_residual =
              recovers && bucket.update_at_workers() && NeedsErrorFeedback(bucket.codec())};
}

void AddTo(wire::Holdings& holdings, const ChunkKey& key, std::optional<int64_t> version) {
  if (!version) return;
  wire::HeldChunk& held = *holdings.add_chunks();
  held.set_bucket(static_cast<int>(key.bucket));
  held.set_chunk(static_cast<int>(key.chunk));
  held.set_iteration(*version);
}

}  // namespace

ShardState::ShardState(const wire::PlanAndModel& plan, const UpdateRule& rule,
                       const Options& options)
    : rule_(rule),
      options_(options),
      open_iterations_(KvPair::OpenIterations(plan.plan().staleness())) {
  const std::vector<Place> places = Places(plan);
  int64_t floats = 0;
  for (const Place& place : places) floats += place.memory_floats;
  memory_ = std::make_shared<ZeroedMemory>(options.phantom ? 0 : floats);
  for (const Place& place : places) Make(plan, place);
}

std::vector<ShardState::Place> ShardState::Places(const wire::PlanAndModel& plan) const {
  std::vector<Place> places;
  for (uint32_t b = 0; b < static_cast<uint32_t>(plan.plan().buckets_size()); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(static_cast<int>(b));
    if (!UsesServers(bucket.scheme())) continue;
    // A factor layer's chunks are all at the same server, and at the same second one.
    const bool whole = bucket.scheme() == ADAM;
    for (uint32_t c = 0; c < (whole ? 1U : static_cast<uint32_t>(bucket.chunks_size())); ++c) {
      const Chunk& chunk = bucket.chunks(static_cast<int>(c));
      const bool backup = chunk.has_backup() && chunk.backup() == options_.server;
      if (chunk.lane() != options_.lane) continue;
      if (!backup && chunk.server() != options_.server) continue;
      const int64_t floats =
          whole ? FactorLayer::MemoryFloats(ShapeOf(plan, bucket), rule_)
                : KvPair::MemoryFloats(PairOptions(plan, bucket, backup, options_.recovers), rule_,
                                       chunk.size());
      places.push_back({{b, c}, backup, floats});
    }
  }
  return places;
}

void ShardState::Make(const wire::PlanAndModel& plan, const Place& place) {
  const BucketPlan& bucket = plan.plan().buckets(static_cast<int>(place.key.bucket));
  const std::span<float> memory = memory_->Take(options_.phantom ? 0 : place.memory_floats);
  if (bucket.scheme() == ADAM) {
    (place.backup ? factor_layer_backups_ : factor_layers_)
        .try_emplace(place.key.bucket, ShapeOf(plan, bucket),
                     std::vector<Chunk>(bucket.chunks().begin(), bucket.chunks().end()),
                     UpdateSegments(plan.model(), bucket, 0, FloatCount(bucket)), memory);
    return;
  }
  const Chunk& chunk = bucket.chunks(static_cast<int>(place.key.chunk));
  (place.backup ? pair_backups_ : pairs_)
      .try_emplace(place.key, PairOptions(plan, bucket, place.backup, options_.recovers),
                   chunk.size(), UpdateSegments(plan.model(), bucket, chunk.offset(), chunk.size()),
                   memory);
}

int64_t ShardState::largest_pair() const {
  int64_t largest = 0;
  for (const auto* pairs : {&pairs_, &pair_backups_}) {
    for (const auto& [key, pair] : *pairs) largest = std::max(largest, pair.size());
  }
  return largest;
}

// One more, which a pair borrows for a moment only.
size_t ShardState::sums() const { return pairs_.size() * open_iterations_ + 1; }

int64_t ShardState::owned_floats() const {
  int64_t floats = 0;
  for (const auto& [key, pair] : pairs_) floats += pair.size();
  for (const auto& [bucket, layer] : factor_layers_) floats += layer.size();
  return floats;
}

void ShardState::AddTo(wire::Holdings& holdings) const {
  for (const auto* pairs : {&pairs_, &pair_backups_}) {
    for (const auto& [key, pair] : *pairs) {
      if (pair.options().backed_up) poseidon::AddTo(holdings, key, pair.version());
    }
  }
  for (const auto* layers : {&factor_layers_, &factor_layer_backups_}) {
    for (const auto& [bucket, layer] : *layers) {
      for (uint32_t chunk = 0; chunk < layer.chunks().size(); ++chunk) {
        poseidon::AddTo(holdings, {bucket, chunk}, layer.version(chunk));
      }
    }
  }
}

bool ShardState::is_backup(const ChunkKey& key) const {
  return pair_backups_.contains(key) || factor_layer_backups_.contains(key.bucket);
}

const KvPair* ShardState::PairOf(const ChunkKey& key) const {
  for (const auto* pairs : {&pairs_, &pair_backups_}) {
    const auto pair = pairs->find(key);
    if (pair != pairs->end()) return &pair->second;
  }
  return nullptr;
}

KvPair* ShardState::PairOf(const ChunkKey& key) {
  return const_cast<KvPair*>(std::as_const(*this).PairOf(key));
}

const FactorLayer* ShardState::LayerOf(uint32_t bucket) const {
  for (const auto* layers : {&factor_layers_, &factor_layer_backups_}) {
    const auto layer = layers->find(bucket);
    if (layer != layers->end()) return &layer->second;
  }
  return nullptr;
}

FactorLayer* ShardState::LayerOf(uint32_t bucket) {
  return const_cast<FactorLayer*>(std::as_const(*this).LayerOf(bucket));
}

int64_t ShardState::size(const ChunkKey& key) const {
  const KvPair* pair = PairOf(key);
  return pair != nullptr ? pair->size() : LayerOf(key.bucket)->chunks().at(key.chunk).size();
}

std::optional<int64_t> ShardState::version(const ChunkKey& key) const {
  const KvPair* pair = PairOf(key);
  return pair != nullptr ? pair->version() : LayerOf(key.bucket)->version(key.chunk);
}

bool ShardState::Initialize(const ChunkKey& key, const Payload& values) {
  KvPair* pair = PairOf(key);
  if (pair != nullptr) return pair->Initialize(values);
  return LayerOf(key.bucket)->Initialize(key.chunk, values);
}

bool ShardState::InitializeState(const ChunkKey& key, const Payload& state) {
  KvPair* pair = PairOf(key);
  if (pair != nullptr) return pair->InitializeState(state, rule_);
  return LayerOf(key.bucket)->InitializeState(key.chunk, state, rule_);
}

std::optional<ChunkState> ShardState::At(const ChunkKey& key, int64_t iteration) const {
  const KvPair* pair = PairOf(key);
  if (pair != nullptr) return pair->At(iteration);
  const FactorLayer* layer = LayerOf(key.bucket);
  return layer != nullptr ? layer->At(key.chunk, iteration) : std::nullopt;
}

void ShardState::TakeOver(const ShardState& before, const Plan& plan) {
  const auto state = [&](const ChunkKey& key) -> std::optional<ChunkState> {
    const Chunk& chunk =
        plan.buckets(static_cast<int>(key.bucket)).chunks(static_cast<int>(key.chunk));
    const Chunk::Recipient self = is_backup(key) ? Chunk::BACKUP : Chunk::OWNER;
    if (chunk.recipient() == self) return std::nullopt;
    return before.At(key, plan.start_iteration());
  };
  for (auto* pairs : {&pairs_, &pair_backups_}) {
    for (auto& [key, pair] : *pairs) {
      if (!pair.options().backed_up && !pair.options().keeps_residual) continue;
      if (const auto kept = state(key)) pair.Restore(*kept);
    }
  }
  for (auto* layers : {&factor_layers_, &factor_layer_backups_}) {
    for (auto& [bucket, layer] : *layers) {
      for (uint32_t chunk = 0; chunk < layer.chunks().size(); ++chunk) {
        if (const auto kept = state({bucket, chunk})) layer.Restore(chunk, *kept);
      }
    }
  }
}

}  // namespace poseidon
