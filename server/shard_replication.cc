// ShardActor: what the two servers that keep a chunk say to each other.
#include "server/shard_actor.h"

namespace poseidon {

void ShardActor::OnServerFrame(const Envelope& envelope, Outbox& outbox) {
  // Of factors the chunk says whose they are, and all chunks are kept by the same two.
  const bool factors = envelope.kind == MessageKind::kFactors;
  const ChunkKey key{envelope.bucket, factors ? 0 : envelope.chunk};
  const Replication::Copy* copy = replication_.Find(key);
  if (copy != nullptr && state_->is_backup(key) && envelope.from.node == copy->owner) {
    return factors ? OnFactorsOfOwner(envelope, outbox) : OnFrameOfOwner(envelope, key, outbox);
  }
  if (copy != nullptr && !state_->is_backup(key) && envelope.from.node == copy->backup) {
    return OnFrameOfBackup(envelope, key, outbox);
  }
  dropped_.AddInvalid(envelope, "from a server that does not keep the chunk with this one");
}

void ShardActor::OnFrameOfOwner(const Envelope& envelope, const ChunkKey& key, Outbox& outbox) {
  if (envelope.kind == MessageKind::kReplica) return OnReplica(envelope, key, outbox);
  if (TakeStart(envelope, key)) Confirm(key, outbox);
}

void ShardActor::OnReplica(const Envelope& envelope, const ChunkKey& key, Outbox& outbox) {
  const auto copy = state_->pair_backups().find(key);
  if (copy == state_->pair_backups().end()) {
    return dropped_.AddInvalid(envelope, "of a wrong kind");
  }
  const auto groups = GroupsFor(envelope, key, copy->second);
  if (!groups) return dropped_.AddInvalid(envelope, "without the numbers that its update needs");
  const FrameStatus status =
      copy->second.Replicate(envelope.iteration, envelope.body, rule_, *pool_, *groups);
  if (Accept(envelope, status, outbox)) Confirm(key, outbox);
}

void ShardActor::OnFactorsOfOwner(const Envelope& envelope, Outbox& outbox) {
  const auto copy = state_->factor_layer_backups().find(envelope.bucket);
  const int worker = static_cast<int>(envelope.chunk / FactorLayer::kFactors);
  if (copy == state_->factor_layer_backups().end() || worker >= workers_) {
    return dropped_.AddInvalid(envelope, "for a layer or of a worker that is not here");
  }
  FactorLayer& layer = copy->second;
  const FrameStatus status =
      layer.Add(worker, envelope.iteration, envelope.chunk % FactorLayer::kFactors, envelope.body,
                AwakeNow(outbox));
  if (!Accept(envelope, status, outbox) || !layer.complete()) return;
  UpdateLayer(envelope.bucket, layer, outbox,
              [this](const ChunkKey& key, Outbox& later) { Confirm(key, later); });
}

void ShardActor::Confirm(const ChunkKey& key, Outbox& outbox) {
  const int64_t version = *state_->version(key);
  outbox.Send(MakeFrame(MessageKind::kReplicated, key, replication_.Find(key)->owner, version,
                        version - 1));
}

void ShardActor::OnFrameOfBackup(const Envelope& envelope, const ChunkKey& key, Outbox& outbox) {
  if (envelope.kind != MessageKind::kReplicated) {
    // Who sends it has the chunk already.
    if (TakeStart(envelope, key)) AnswerAll(key, outbox);
    return;
  }
  if (!replication_.Confirm(key, envelope.iteration)) return dropped_.AddStale();
  // Else the own update is not made yet, and its end answers.
  if (state_->version(key) == envelope.iteration) AnswerAll(key, outbox);
}

bool ShardActor::TakeStart(const Envelope& envelope, const ChunkKey& key) {
  const bool values = envelope.kind == MessageKind::kInitialValues;
  if (!values && envelope.kind != MessageKind::kInitialOptimizerState) {
    dropped_.AddInvalid(envelope, "of a wrong kind");
    return false;
  }
  if (values ? !state_->Initialize(key, envelope.body)
             : !state_->InitializeState(key, envelope.body)) {
    dropped_.AddStale();
    return false;
  }
  return state_->version(key).has_value();
}

void ShardActor::PublishStart(Outbox& outbox) {
  if (!replication_.starts_from_servers()) return;
  for (const auto& [key, copy] : replication_.copies()) {
    const bool own = !state_->is_backup(key);
    if (own && copy.recipient == Chunk::NOBODY) AnswerAll(key, outbox);
    if (own && copy.recipient == Chunk::BACKUP) PublishStart(key, outbox);
    if (!own && copy.recipient == Chunk::OWNER) SendStart(key, copy.owner, outbox);
  }
}

void ShardActor::PublishStart(const ChunkKey& key, Outbox& outbox) {
  const Replication::Copy* copy = replication_.Find(key);
  if (copy == nullptr) return AnswerAll(key, outbox);
  SendStart(key, copy->backup, outbox);
  replication_.Await(key, *state_->version(key), AwakeNow(outbox));
}

void ShardActor::SendStart(const ChunkKey& key, const NodeId& server, Outbox& outbox) {
  const int64_t iteration = *state_->version(key);
  const ChunkState state = *state_->At(key, iteration);
  const int64_t size = state_->size(key);
  Envelope values = MakeFrame(MessageKind::kInitialValues, key, server, iteration, iteration - 1);
  // Without a copy: neither changes before the other server has it and the workers are answered.
  values.body = ViewOf(state.values, size);
  outbox.Send(std::move(values));
  if (!starts_with_state_) return;
  Envelope own =
      MakeFrame(MessageKind::kInitialOptimizerState, key, server, iteration, iteration - 1);
  own.body = ViewOf(state.optimizer_state, size * OptimizerStatePerParameter(rule_));
  outbox.Send(std::move(own));
}

void ShardActor::Replicate(const ChunkKey& key, const KvPair& pair, const NodeId& backup,
                           const Payload& settings, Outbox& outbox) {
  const int64_t version = pair.iteration();
  Envelope replica = MakeFrame(MessageKind::kReplica, key, backup, version - 1, version - 1);
  // Without a copy: the next sum is complete only when the workers have been answered.
  replica.body = ViewOf(pair.last_sum(), pair.size());
  replica.settings = settings;
  outbox.Send(std::move(replica));
  replication_.Await(key, version, AwakeNow(outbox));
}

void ShardActor::Replicate(const Envelope& factor, int sender, const FactorLayer& layer,
                           const NodeId& backup, Outbox& outbox) {
  const uint32_t number = FactorLayer::kFactors * static_cast<uint32_t>(sender) + factor.chunk;
  Envelope copy = MakeFrame(MessageKind::kFactors, {factor.bucket, number}, backup,
                            factor.iteration, factor.iteration);
  copy.body = factor.body;
  outbox.Send(std::move(copy));
  if (!layer.complete()) return;
  for (uint32_t chunk = 0; chunk < layer.chunks().size(); ++chunk) {
    replication_.Await({factor.bucket, chunk}, layer.iteration() + 1, AwakeNow(outbox));
  }
}

}  // namespace poseidon
