#include "client/sync/parameter_server_syncer.h"

#include <algorithm>

#include "core/arithmetic/sum.h"

namespace poseidon {
namespace {

Payload Slice(const Payload& whole, size_t offset, size_t size) {
  if (whole.phantom()) return Payload::Phantom(size);
  return Payload::View(whole.bytes().subspan(offset, size), whole.owner());
}

}  // namespace

ParameterServerSyncer::ParameterServerSyncer(std::shared_ptr<SyncContext> context, int bucket,
                                             int lane)
    : context_(std::move(context)),
      bucket_(bucket),
      lane_(lane),
      codec_(CodecOf(context_->plan.plan(), plan())),
      chunks_(ChunksOnLane(plan(), lane)),
      arrived_(plan().chunks_size()),
      outstanding_(static_cast<int>(chunks_.size())),
      fresh_iteration_(context_->start() - 1) {
  if (!plan().update_at_workers()) return;
  const InitialBroadcast::Contents from_workers{
      .values = !values_from_servers(), .optimizer_state = context_->starts_with_optimizer_state()};
  if (!from_workers.values && !from_workers.optimizer_state) return;
  from_workers_.emplace(context_, bucket_, chunks_, from_workers);
  if (from_workers.values) outstanding_ = 0;
  if (!context_->publishes_start()) ++outstanding_;
}

bool ParameterServerSyncer::values_from_servers() const {
  return context_->plan.plan().holders().empty() || !plan().update_at_workers();
}

bool ParameterServerSyncer::servers_hold() const {
  return !context_->plan.plan().holders().empty() && !plan().update_at_workers();
}

FrameStatus ParameterServerSyncer::PublishInitial(const Payload& optimizer_state, Outbox& outbox) {
  if (from_workers_) from_workers_->Publish(outbox);
  if (!values_from_servers()) return CountDown();
  // They are the only ones to have its optimizer state.
  if (servers_hold()) return FrameStatus::kAccepted;
  // Servers answer all workers, so one of those that have the values is enough.
  if (context_->place != context_->publisher()) return FrameStatus::kAccepted;
  const bool to_servers = context_->starts_with_optimizer_state() && !plan().update_at_workers();
  const size_t state = OptimizerStatePerParameter(context_->rule) * sizeof(float);
  for (const int c : chunks_) {
    const Chunk& chunk = plan().chunks(c);
    const NodeId server = context_->Server(chunk.server());
    outbox.Send(context_->MakeFrame(
        MessageKind::kInitialValues, server, lane_, bucket_, c, context_->start(),
        context_->ViewOf(memory().values, chunk.offset(), chunk.size())));
    if (!to_servers) continue;
    outbox.Send(context_->MakeFrame(
        MessageKind::kInitialOptimizerState, server, lane_, bucket_, c, context_->start(),
        Slice(optimizer_state, chunk.offset() * state, chunk.size() * state)));
  }
  return FrameStatus::kAccepted;
}

FrameStatus ParameterServerSyncer::Send(int64_t iteration, Outbox& outbox) {
  for (const int c : chunks_) {
    const Chunk& chunk = plan().chunks(c);
    if (context_->kept != nullptr) context_->kept->BeforeSend(bucket_, c, iteration);
    Envelope envelope =
        context_->MakeFrame(MessageKind::kGradient, context_->Server(chunk.server()), lane_,
                            bucket_, c, iteration, GradientBody(c, iteration));
    context_->CountSent(bucket_, envelope);
    outbox.Send(std::move(envelope));
  }
  waiting_ = true;
  return FrameStatus::kAccepted;
}

Payload ParameterServerSyncer::GradientBody(int c, int64_t iteration) {
  const Chunk& chunk = plan().chunks(c);
  const std::span<const float> gradient = memory().gradients[iteration % 2];
  // Sent without a copy: the engine writes the next gradient only after the values that answer
  // this one have come, so after the server has it.
  if (codec_.type == CodecType::kFp32)
    return context_->ViewOf(gradient, chunk.offset(), chunk.size());
  if (!memory().packed.empty()) {  // without a copy, likewise
    return Payload::View(memory().packed_chunks[c], context_->memory);
  }
  const size_t bytes = EncodedBytes(codec_, chunk.size());
  if (context_->phantom) return Payload::Phantom(bytes);
  const std::span<float> residual = memory().residual.empty()
                                        ? memory().residual
                                        : memory().residual.subspan(chunk.offset(), chunk.size());
  auto encoded = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> out(encoded.get(), bytes);
  Encode(codec_, gradient.subspan(chunk.offset(), chunk.size()), residual, out);
  return Payload::View(out, std::move(encoded));
}

bool ParameterServerSyncer::IsSum(const Envelope& envelope) const {
  return plan().update_at_workers() && envelope.iteration > context_->start();
}

bool ParameterServerSyncer::Fits(const Envelope& envelope, const Chunk& chunk) const {
  const bool sum = IsSum(envelope);
  if (envelope.kind != (sum ? MessageKind::kGradientSum : MessageKind::kValues)) return false;
  const size_t bytes =
      sum ? EncodedBytes(codec_, chunk.size()) : static_cast<size_t>(chunk.size()) * sizeof(float);
  return chunk.lane() == lane_ && envelope.body.size() == bytes &&
         envelope.from.node == context_->Server(chunk.server());
}

FrameStatus ParameterServerSyncer::Receive(const Envelope& envelope, Outbox& outbox) {
  if (InitialBroadcast::Carries(envelope.kind)) return ReceiveStart(envelope, outbox);
  if (envelope.chunk >= arrived_.size()) return FrameStatus::kInvalid;
  const int c = static_cast<int>(envelope.chunk);
  const Chunk& chunk = plan().chunks(c);
  if (!Fits(envelope, chunk)) return FrameStatus::kInvalid;
  if (envelope.iteration <= fresh_iteration_) return FrameStatus::kDuplicate;
  if (!waiting_ || envelope.iteration > fresh_iteration_ + 1) return FrameStatus::kInvalid;
  if (arrived_[c]) return FrameStatus::kDuplicate;
  arrived_[c] = true;
  Move(envelope, chunk);
  if (envelope.iteration > context_->start()) context_->CountReceived(bucket_, envelope);
  return CountDown();
}

FrameStatus ParameterServerSyncer::ReceiveStart(const Envelope& envelope, Outbox& outbox) {
  if (!from_workers_) return FrameStatus::kInvalid;
  const FrameStatus status = from_workers_->Receive(envelope, outbox);
  return status == FrameStatus::kComplete ? CountDown() : status;
}

FrameStatus ParameterServerSyncer::CountDown() {
  if (--outstanding_ > 0) return FrameStatus::kAccepted;
  arrived_.assign(arrived_.size(), false);
  outstanding_ = static_cast<int>(chunks_.size());
  waiting_ = false;
  ++fresh_iteration_;
  return FrameStatus::kComplete;
}

void ParameterServerSyncer::Move(const Envelope& envelope, const Chunk& chunk) {
  if (envelope.kind == MessageKind::kGradientSum) {
    context_->Keep(bucket_, fresh_iteration_, chunk.offset(), chunk.size());
  }
  if (envelope.body.phantom()) return;
  if (envelope.kind == MessageKind::kValues) {
    return CopyFrom(memory().values.subspan(chunk.offset(), chunk.size()), envelope.body.bytes());
  }
  // The server has answered, so it has the gradient: its memory is free for the sum.
  const std::span<float> sum =
      memory().gradients[fresh_iteration_ % 2].subspan(chunk.offset(), chunk.size());
  // Of the right size; what else may be wrong in it leaves harmless values.
  Decode(codec_, envelope.body.bytes(), sum);
  if (context_->DevicesUpdateDense(bucket_)) return;  // they are told to divide it
  // The mean takes the gradient's place, not the sum: an engine that replays leaves it there.
  const float share = 1.0F / static_cast<float>(context_->workers());
  for (float& value : sum) value *= share;
  context_->UpdateRange(bucket_, fresh_iteration_, chunk.offset(), sum, 1);
}

std::vector<NodeId> ParameterServerSyncer::missing() const {
  std::vector<NodeId> nodes;
  if (!waiting_) return nodes;
  const bool start = fresh_iteration_ < context_->start();
  if (start && from_workers_) nodes = from_workers_->missing();
  if (start && !values_from_servers()) return nodes;
  for (const int c : chunks_) {
    const NodeId server = context_->Server(plan().chunks(c).server());
    if (!arrived_[c] && std::find(nodes.begin(), nodes.end(), server) == nodes.end()) {
      nodes.push_back(server);
    }
  }
  return nodes;
}

}  // namespace poseidon
