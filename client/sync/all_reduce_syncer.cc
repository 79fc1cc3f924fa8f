#include "client/sync/all_reduce_syncer.h"

#include <algorithm>

namespace poseidon {

AllReduceSyncer::AllReduceSyncer(std::shared_ptr<SyncContext> context, int bucket, int lane)
    : context_(std::move(context)),
      bucket_(bucket),
      lane_(lane),
      initial_(context_, bucket, ChunksOnLane(plan(), lane),
               {.values = true, .history = context_->starts_with_state()}),
      fresh_iteration_(context_->start() - 1) {
  for (const int c : ChunksOnLane(plan(), lane)) {
    const Chunk& chunk = plan().chunks(c);
    parts_.push_back(
        {c, ScheduleRunner(
                AllReduceSteps(plan().scheme(), context_->plan.plan(), c,
                               {chunk.offset(), chunk.size()}, context_->rank, context_->workers()),
                CodecOf(context_->plan.plan(), plan()),
                1.0F / static_cast<float>(context_->workers()), context_->start())});
  }
}

Reception AllReduceSyncer::PublishInitial(const Payload& history, Outbox& outbox) {
  (void)history;  // it is in memory
  initial_.Publish(outbox);
  fresh_iteration_ = context_->start();
  return Reception::kFresh;
}

Reception AllReduceSyncer::Send(int64_t iteration, Outbox& outbox) {
  const std::span<float> gradient = context_->memory->bucket(bucket_).gradients[iteration % 2];
  outstanding_ = static_cast<int>(parts_.size());
  Reception reception = Reception::kTaken;
  for (Part& part : parts_) {
    part.updated = false;
    part.runner.Begin(gradient, context_->memory, frames_);
    SendFrames(part, iteration, outbox);
    reception = FinishPart(part);
  }
  return reception;
}

Reception AllReduceSyncer::Receive(const Envelope& envelope, Outbox& outbox) {
  if (InitialBroadcast::Carries(envelope.kind)) {
    const Reception reception = initial_.Receive(envelope, outbox);
    if (reception == Reception::kFresh) fresh_iteration_ = context_->start();
    return reception;
  }
  if (envelope.kind == MessageKind::kReduce) return ReceiveReduce(envelope, outbox);
  return Reception::kForeign;
}

Reception AllReduceSyncer::ReceiveReduce(const Envelope& envelope, Outbox& outbox) {
  const auto part = std::lower_bound(parts_.begin(), parts_.end(), envelope.chunk,
                                     [](const Part& candidate, uint32_t chunk) {
                                       return static_cast<uint32_t>(candidate.chunk) < chunk;
                                     });
  if (part == parts_.end() || static_cast<uint32_t>(part->chunk) != envelope.chunk ||
      envelope.from.node.role != Role::kWorker) {
    return Reception::kForeign;
  }
  switch (part->runner.Receive(envelope.iteration, envelope.from.node.rank,
                               static_cast<int>(envelope.step), envelope.body, frames_)) {
    case ScheduleRunner::Outcome::kOld:
      return Reception::kOld;
    case ScheduleRunner::Outcome::kForeign:
      return Reception::kForeign;
    case ScheduleRunner::Outcome::kTaken:
      break;
  }
  context_->CountReceived(bucket_, envelope);
  SendFrames(*part, part->runner.begun() - 1, outbox);
  return FinishPart(*part);
}

void AllReduceSyncer::SendFrames(const Part& part, int64_t iteration, Outbox& outbox) {
  for (ReduceFrame& frame : frames_) {
    Envelope envelope =
        context_->MakeFrame(MessageKind::kReduce, {Role::kWorker, frame.peer}, lane_, bucket_,
                            part.chunk, iteration, std::move(frame.body));
    envelope.step = static_cast<uint32_t>(frame.step);
    context_->CountSent(bucket_, envelope);
    outbox.Send(std::move(envelope));
  }
  frames_.clear();
}

Reception AllReduceSyncer::FinishPart(Part& part) {
  if (part.updated || !part.runner.done()) return Reception::kTaken;
  part.updated = true;
  const Chunk& chunk = plan().chunks(part.chunk);
  if (!context_->phantom) {
    const std::span<float> mean = context_->memory->bucket(bucket_).gradients[fresh_iteration_ % 2];
    context_->UpdateRange(bucket_, fresh_iteration_, chunk.offset(),
                          mean.subspan(chunk.offset(), chunk.size()), 1);
  }
  if (--outstanding_ > 0) return Reception::kTaken;
  ++fresh_iteration_;
  return Reception::kFresh;
}

std::vector<NodeId> AllReduceSyncer::missing() const {
  if (fresh_iteration_ < context_->start()) return {initial_.parent()};
  std::vector<NodeId> workers;
  for (const Part& part : parts_) {
    const std::optional<int> rank = part.runner.missing();
    if (!rank) continue;
    const NodeId worker{Role::kWorker, *rank};
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) {
      workers.push_back(worker);
    }
  }
  return workers;
}

}  // namespace poseidon
