#include "client/sync/all_reduce_syncer.h"

#include <algorithm>

namespace poseidon {

AllReduceSyncer::AllReduceSyncer(std::shared_ptr<SyncContext> context, int bucket, int lane)
    : context_(std::move(context)),
      bucket_(bucket),
      lane_(lane),
      initial_(context_, bucket, ChunksOnLane(plan(), lane),
               {.values = true, .optimizer_state = context_->starts_with_optimizer_state()}),
      fresh_iteration_(context_->start() - 1) {
  for (const int c : ChunksOnLane(plan(), lane)) {
    const Chunk& chunk = plan().chunks(c);
    parts_.push_back(
        {c, ScheduleRunner(AllReduceSteps(plan().scheme(), context_->plan.plan(), c,
                                          {chunk.offset(), chunk.size()}, context_->place,
                                          context_->workers()),
                           CodecOf(context_->plan.plan(), plan()),
                           1.0F / static_cast<float>(context_->workers()), context_->start())});
  }
}

FrameStatus AllReduceSyncer::PublishInitial(const Payload& optimizer_state, Outbox& outbox) {
  (void)optimizer_state;  // it is in memory
  initial_.Publish(outbox);
  fresh_iteration_ = context_->start();
  return FrameStatus::kComplete;
}

FrameStatus AllReduceSyncer::Send(int64_t iteration, Outbox& outbox) {
  const std::span<float> gradient = context_->memory->bucket(bucket_).gradients[iteration % 2];
  outstanding_ = static_cast<int>(parts_.size());
  FrameStatus status = FrameStatus::kAccepted;
  for (Part& part : parts_) {
    part.updated = false;
    part.runner.Begin(gradient, context_->memory, frames_);
    SendFrames(part, iteration, outbox);
    status = FinishPart(part);
  }
  return status;
}

FrameStatus AllReduceSyncer::Receive(const Envelope& envelope, Outbox& outbox) {
  if (InitialBroadcast::Carries(envelope.kind)) {
    const FrameStatus status = initial_.Receive(envelope, outbox);
    if (status == FrameStatus::kComplete) fresh_iteration_ = context_->start();
    return status;
  }
  if (envelope.kind == MessageKind::kReduce) return ReceiveReduce(envelope, outbox);
  return FrameStatus::kInvalid;
}

FrameStatus AllReduceSyncer::ReceiveReduce(const Envelope& envelope, Outbox& outbox) {
  const auto part = std::lower_bound(parts_.begin(), parts_.end(), envelope.chunk,
                                     [](const Part& candidate, uint32_t chunk) {
                                       return static_cast<uint32_t>(candidate.chunk) < chunk;
                                     });
  const int sender = context_->PlaceOf(envelope.from.node);
  if (part == parts_.end() || static_cast<uint32_t>(part->chunk) != envelope.chunk || sender < 0) {
    return FrameStatus::kInvalid;
  }
  const FrameStatus status = part->runner.Receive(
      envelope.iteration, sender, static_cast<int>(envelope.step), envelope.body, frames_);
  if (status != FrameStatus::kAccepted) return status;
  context_->CountReceived(bucket_, envelope);
  SendFrames(*part, part->runner.begun() - 1, outbox);
  return FinishPart(*part);
}

void AllReduceSyncer::SendFrames(const Part& part, int64_t iteration, Outbox& outbox) {
  for (ReduceFrame& frame : frames_) {
    Envelope envelope =
        context_->MakeFrame(MessageKind::kReduce, context_->Worker(frame.peer), lane_, bucket_,
                            part.chunk, iteration, std::move(frame.body));
    envelope.step = static_cast<uint32_t>(frame.step);
    context_->CountSent(bucket_, envelope);
    outbox.Send(std::move(envelope));
  }
  frames_.clear();
}

FrameStatus AllReduceSyncer::FinishPart(Part& part) {
  if (part.updated || !part.runner.done()) return FrameStatus::kAccepted;
  part.updated = true;
  const Chunk& chunk = plan().chunks(part.chunk);
  context_->Keep(bucket_, fresh_iteration_, chunk.offset(), chunk.size());
  if (!context_->phantom) {
    const std::span<float> mean = context_->memory->bucket(bucket_).gradients[fresh_iteration_ % 2];
    context_->UpdateRange(bucket_, fresh_iteration_, chunk.offset(),
                          mean.subspan(chunk.offset(), chunk.size()), 1);
  }
  if (--outstanding_ > 0) return FrameStatus::kAccepted;
  ++fresh_iteration_;
  return FrameStatus::kComplete;
}

std::vector<NodeId> AllReduceSyncer::missing() const {
  if (fresh_iteration_ < context_->start()) return initial_.missing();
  std::vector<NodeId> workers;
  for (const Part& part : parts_) {
    const std::optional<int> place = part.runner.missing();
    if (!place) continue;
    const NodeId worker = context_->Worker(*place);
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) {
      workers.push_back(worker);
    }
  }
  return workers;
}

}  // namespace poseidon
