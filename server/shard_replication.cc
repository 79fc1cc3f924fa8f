// ShardActor: what the two servers that keep a chunk say to each other.
#include "server/shard_actor.h"

namespace poseidon {

void ShardActor::OnServerFrame(const Envelope& envelope, Outbox& outbox) {
  const ChunkKey key{envelope.bucket, envelope.chunk};
  const Replication::Copy* copy = replication_.Find(key);
  const auto backup = state_->backups().find(key);
  if (copy != nullptr && backup != state_->backups().end() && envelope.from.node == copy->owner) {
    return OnFrameOfOwner(envelope, key, backup->second, outbox);
  }
  if (copy != nullptr && backup == state_->backups().end() && envelope.from.node == copy->backup) {
    return OnFrameOfBackup(envelope, key, outbox);
  }
  dropped_.AddInvalid(envelope, "from a server that does not keep the chunk with this one");
}

void ShardActor::OnFrameOfOwner(const Envelope& envelope, const ChunkKey& key, KvPair& copy,
                                Outbox& outbox) {
  if (envelope.kind == MessageKind::kReplica) {
    const auto groups = GroupsFor(envelope, key, copy);
    if (!groups) return dropped_.AddInvalid(envelope, "without the numbers that its update needs");
    const FrameStatus status =
        copy.Replicate(envelope.iteration, envelope.body, rule_, *pool_, *groups);
    if (!Accept(envelope, status, outbox)) return;
  } else if (!TakeStart(envelope, key)) {
    return;
  }
  outbox.Send(MakeFrame(MessageKind::kReplicated, key, envelope.from.node, copy.iteration(),
                        copy.iteration() - 1));
}

void ShardActor::OnFrameOfBackup(const Envelope& envelope, const ChunkKey& key, Outbox& outbox) {
  if (envelope.kind != MessageKind::kReplicated) {
    // Who sends it has the chunk already.
    if (TakeStart(envelope, key)) AnswerAll(key, outbox);
    return;
  }
  if (!replication_.Confirm(key, envelope.iteration)) return dropped_.AddStale();
  AnswerAll(key, outbox);
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
    const bool own = !state_->backups().contains(key);
    if (own && copy.recipient == Chunk::NOBODY) AnswerAll(key, outbox);
    if (own && copy.recipient == Chunk::BACKUP) PublishStart(key, outbox);
    if (!own && copy.recipient == Chunk::OWNER) SendStart(key, copy.owner, outbox);
  }
}

void ShardActor::PublishStart(const ChunkKey& key, Outbox& outbox) {
  const Replication::Copy* copy = replication_.Find(key);
  if (copy == nullptr) return AnswerAll(key, outbox);
  SendStart(key, copy->backup, outbox);
  replication_.Await(key, *state_->version(key), outbox.now);
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

void ShardActor::PublishUpdate(const ChunkKey& key, const Payload& settings, Outbox& outbox) {
  const Replication::Copy* copy = replication_.Find(key);
  if (copy == nullptr) return AnswerAll(key, outbox);
  const int64_t version = *state_->version(key);
  Envelope replica = MakeFrame(MessageKind::kReplica, key, copy->backup, version - 1, version - 1);
  // Without a copy: the next sum is complete only when the workers have been answered.
  replica.body = ViewOf(state_->last_sum(key), state_->size(key));
  replica.settings = settings;
  outbox.Send(std::move(replica));
  replication_.Await(key, version, outbox.now);
}

}  // namespace poseidon
