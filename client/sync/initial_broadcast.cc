#include "client/sync/initial_broadcast.h"

#include <algorithm>

#include "core/arithmetic/sum.h"

namespace poseidon {

InitialBroadcast::InitialBroadcast(std::shared_ptr<SyncContext> context, int bucket,
                                   std::vector<int> chunks, const Contents& contents)
    : context_(std::move(context)), bucket_(bucket), chunks_(std::move(chunks)) {
  const BucketMemory& memory = context_->memory->bucket(bucket_);
  const std::vector<bool> none(plan().chunks_size());
  if (contents.values) parts_.push_back({MessageKind::kInitialValues, memory.values, 1, none});
  if (contents.optimizer_state) {
    parts_.push_back({MessageKind::kInitialOptimizerState, memory.optimizer_state,
                      OptimizerStatePerParameter(context_->rule), none});
  }
  outstanding_ = parts_.size() * chunks_.size();
}

void InitialBroadcast::Publish(Outbox& outbox) {
  for (const Part& part : parts_) {
    for (const int chunk : chunks_) SendToChildren(part, chunk, outbox);
  }
  outstanding_ = 0;
}

FrameStatus InitialBroadcast::Receive(const Envelope& envelope, Outbox& outbox) {
  const int c = static_cast<int>(envelope.chunk);
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& candidate) {
    return candidate.kind == envelope.kind;
  });
  if (part == parts_.end() || context_->rank == 0 || envelope.from.node != parent() ||
      std::find(chunks_.begin(), chunks_.end(), c) == chunks_.end() ||
      envelope.body.size() != plan().chunks(c).size() * part->floats * sizeof(float)) {
    return FrameStatus::kInvalid;
  }
  if (part->arrived[c]) return FrameStatus::kDuplicate;
  part->arrived[c] = true;
  if (!envelope.body.phantom()) {
    CopyFrom(part->memory.subspan(plan().chunks(c).offset() * part->floats,
                                  plan().chunks(c).size() * part->floats),
             envelope.body.bytes());
  }
  SendToChildren(*part, c, outbox);
  return --outstanding_ == 0 ? FrameStatus::kComplete : FrameStatus::kAccepted;
}

void InitialBroadcast::SendToChildren(const Part& part, int chunk, Outbox& outbox) const {
  const Chunk& planned = plan().chunks(chunk);
  for (int child = 2 * context_->rank + 1; child <= 2 * context_->rank + 2; ++child) {
    if (child >= context_->workers()) continue;
    // Without a copy: memory changes when all workers have taken part in the first iteration, so
    // after all have had what it starts with.
    outbox.Send(context_->MakeFrame(part.kind, {Role::kWorker, child}, planned.lane(), bucket_,
                                    chunk, context_->start(),
                                    context_->ViewOf(part.memory, planned.offset() * part.floats,
                                                     planned.size() * part.floats)));
  }
}

}  // namespace poseidon
