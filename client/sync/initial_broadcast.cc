#include "client/sync/initial_broadcast.h"

#include <algorithm>
#include <set>

#include "core/arithmetic/sum.h"
#include "proto/plan_members.h"

namespace poseidon {

InitialBroadcast::InitialBroadcast(std::shared_ptr<SyncContext> context, int bucket,
                                   std::vector<int> chunks, const Contents& contents)
    : context_(std::move(context)), bucket_(bucket), chunks_(std::move(chunks)) {
  const BucketMemory& memory = context_->memory->bucket(bucket_);
  const std::vector<bool> none(plan().chunks_size());
  if (contents.values) parts_.push_back({MessageKind::kInitialValues, memory.values, 1, none});
  if (contents.optimizer_state) {
    parts_.push_back({MessageKind::kInitialOptimizerState,
                      memory.optimizer_state[context_->start() % 2],
                      OptimizerStatePerParameter(context_->rule), none});
  }
  outstanding_ = parts_.size() * chunks_.size();
  if (context_->publishes_start()) beside_holders_ = PlacesBesideHolders(context_->plan.plan());
}

void InitialBroadcast::Publish(Outbox& outbox) {
  for (const Part& part : parts_) {
    for (const int chunk : chunks_) SendToChildren(part, chunk, OwnBody(part, chunk), outbox);
  }
  outstanding_ = 0;
}

FrameStatus InitialBroadcast::Receive(const Envelope& envelope, Outbox& outbox) {
  const int c = static_cast<int>(envelope.chunk);
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& candidate) {
    return candidate.kind == envelope.kind;
  });
  if (part == parts_.end() || context_->publishes_start() ||
      std::find(chunks_.begin(), chunks_.end(), c) == chunks_.end() ||
      envelope.from.node != context_->Worker(Parent(context_->place, c)) ||
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
  // What has come, as the program may be changing what is in memory (OwnBody).
  SendToChildren(*part, c, envelope.body, outbox);
  return --outstanding_ == 0 ? FrameStatus::kComplete : FrameStatus::kAccepted;
}

int InitialBroadcast::Parent(int worker, int chunk) const {
  const auto& holders = context_->plan.plan().holders();
  if (holders.empty()) return (worker - 1) / 2;
  // Any that all workers agree on and that takes turns.
  return holders[(bucket_ + chunk + worker) % holders.size()];
}

std::vector<int> InitialBroadcast::Children(int chunk) const {
  const auto& holders = context_->plan.plan().holders();
  std::vector<int> children;
  if (holders.empty()) {
    for (int child = 2 * context_->place + 1; child <= 2 * context_->place + 2; ++child) {
      if (child < context_->workers()) children.push_back(child);
    }
    return children;
  }
  for (const int worker : beside_holders_) {
    if (Parent(worker, chunk) == context_->place) children.push_back(worker);
  }
  return children;
}

std::vector<NodeId> InitialBroadcast::missing() const {
  std::set<NodeId> nodes;
  if (complete() || context_->publishes_start()) return {};
  for (const Part& part : parts_) {
    for (const int chunk : chunks_) {
      if (!part.arrived[chunk]) nodes.insert(context_->Worker(Parent(context_->place, chunk)));
    }
  }
  return {nodes.begin(), nodes.end()};
}

Payload InitialBroadcast::OwnBody(const Part& part, int chunk) const {
  const Chunk& planned = plan().chunks(chunk);
  Payload body =
      context_->ViewOf(part.memory, planned.offset() * part.floats, planned.size() * part.floats);
  // Without a copy: memory changes when all workers have taken part in the first iteration, so
  // after all have had what it starts with. But under MeanGradient the program makes the update of
  // the iteration before as soon as the bucket is fresh here, and every worker makes it for itself.
  const bool may_change = context_->rule.type == "MeanGradient" && context_->start() > 0;
  return may_change && !body.phantom() ? Payload::FromString(body.ToString()) : body;
}

void InitialBroadcast::SendToChildren(const Part& part, int chunk, const Payload& body,
                                      Outbox& outbox) const {
  for (const int child : Children(chunk)) {
    outbox.Send(context_->MakeFrame(part.kind, context_->Worker(child), plan().chunks(chunk).lane(),
                                    bucket_, chunk, context_->start(), body));
  }
}

}  // namespace poseidon
