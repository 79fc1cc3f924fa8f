#include "client/sync/factor_broadcast_syncer.h"

#include <algorithm>

#include "core/arithmetic/rebuild.h"

namespace poseidon {
namespace {

constexpr int kFactors = 2;  // u, v

}  // namespace

std::optional<ProductUpdate> ProductUpdateOf(const SyncContext& context, int layer) {
  if (!context.devices_update) return std::nullopt;
  // The program makes other deferred updates from what is on the host.
  if (context.rule.deferred && context.rule.type != "MeanGradient") return std::nullopt;
  const LayerPlace& place = context.memory->place(layer);
  const BucketPlan& bucket = context.bucket(place.bucket);
  if (bucket.scheme() != SFB) return std::nullopt;
  const InnerProductSpec& product = context.plan.model().layers(layer).inner_product();
  const std::vector<UpdateSegment> blobs =
      UpdateSegments(context.plan.model(), bucket, 0, place.size);
  return ProductUpdate{.outputs = product.outputs(),
                       .inputs = product.inputs(),
                       .rows = product.rows() * context.workers(),
                       .rule = &context.rule,
                       .weights = blobs.front().multipliers,
                       .bias = blobs.back().multipliers,
                       .gradient_scale = 1.0F / static_cast<float>(context.workers())};
}

FactorBroadcastSyncer::FactorBroadcastSyncer(std::shared_ptr<SyncContext> context, int bucket)
    : context_(std::move(context)),
      bucket_(bucket),
      codec_(CodecOf(context_->plan.plan(), plan())),
      initial_(context_, bucket, ChunksOnLane(plan(), plan().lane()),
               {.values = true, .optimizer_state = context_->starts_with_optimizer_state()}),
      fresh_iteration_(context_->start() - 1) {
  for (Arrivals& arrivals : arrivals_) arrivals.arrived.resize(context_->workers());
}

size_t FactorBroadcastSyncer::FactorFloats(int factor) const {
  return product().rows() * (factor == 0 ? product().outputs() : product().inputs());
}

std::span<float> FactorBroadcastSyncer::Slot(int64_t iteration, int worker, int factor) const {
  const FactorStack& stack = memory().stacks[iteration % 2];
  const size_t floats = FactorFloats(factor);
  return (factor == 0 ? stack.u : stack.v).subspan(worker * floats, floats);
}

FrameStatus FactorBroadcastSyncer::PublishInitial(const Payload& optimizer_state, Outbox& outbox) {
  (void)optimizer_state;  // it is in memory
  initial_.Publish(outbox);
  fresh_iteration_ = context_->start();
  return FrameStatus::kComplete;
}

Payload FactorBroadcastSyncer::OwnFactor(int64_t iteration, int factor) const {
  const size_t floats = FactorFloats(factor);
  const size_t bytes = EncodedBytes(codec_, static_cast<int64_t>(floats));
  if (context_->phantom) return Payload::Phantom(bytes);
  const std::span<float> slot = Slot(iteration, context_->place, factor);
  // Without a copy: this slot is written again two iterations later, which nobody reaches before
  // every worker has had these rows (client/sync/model_memory.h).
  if (codec_.type == CodecType::kFp32)
    return context_->ViewOf(slot, 0, static_cast<int64_t>(floats));
  // This worker, too, must rebuild from what the others get.
  Round(codec_, slot);
  auto encoded = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> out(encoded.get(), bytes);
  Encode(codec_, slot, {}, out);
  return Payload::View(out, std::move(encoded));
}

FrameStatus FactorBroadcastSyncer::Send(int64_t iteration, Outbox& outbox) {
  std::array<Payload, kFactors> bodies;
  for (int factor = 0; factor < kFactors; ++factor) bodies[factor] = OwnFactor(iteration, factor);
  for (int worker = 0; worker < context_->workers(); ++worker) {
    if (worker == context_->place || (plan().factor_ring() && worker != Right())) continue;
    for (int factor = 0; factor < kFactors; ++factor) {
      SendTo(worker, iteration, kFactors * context_->place + factor, bodies[factor], outbox);
    }
  }
  sent_ = true;
  Mark(iteration, context_->place, 0, outbox);
  return Mark(iteration, context_->place, 1, outbox);
}

void FactorBroadcastSyncer::SendTo(int worker, int64_t iteration, int chunk, const Payload& body,
                                   Outbox& outbox) {
  Envelope envelope = context_->MakeFrame(MessageKind::kFactors, context_->Worker(worker),
                                          plan().lane(), bucket_, chunk, iteration, body);
  context_->CountSent(bucket_, envelope);
  outbox.Send(std::move(envelope));
}

FrameStatus FactorBroadcastSyncer::Receive(const Envelope& envelope, Outbox& outbox) {
  if (InitialBroadcast::Carries(envelope.kind)) {
    const FrameStatus status = initial_.Receive(envelope, outbox);
    if (status == FrameStatus::kComplete) fresh_iteration_ = context_->start();
    return status;
  }
  if (envelope.kind == MessageKind::kFactors) return ReceiveFactor(envelope, outbox);
  return FrameStatus::kInvalid;
}

bool FactorBroadcastSyncer::Fits(const Envelope& envelope) const {
  const int worker = static_cast<int>(envelope.chunk / kFactors);
  const int factor = static_cast<int>(envelope.chunk % kFactors);
  const int sender = plan().factor_ring() ? Left() : worker;
  return envelope.chunk < static_cast<uint32_t>(kFactors * context_->workers()) &&
         worker != context_->place && context_->PlaceOf(envelope.from.node) == sender &&
         envelope.body.size() == EncodedBytes(codec_, static_cast<int64_t>(FactorFloats(factor)));
}

FrameStatus FactorBroadcastSyncer::ReceiveFactor(const Envelope& envelope, Outbox& outbox) {
  if (!Fits(envelope)) return FrameStatus::kInvalid;
  const int worker = static_cast<int>(envelope.chunk / kFactors);
  const int factor = static_cast<int>(envelope.chunk % kFactors);
  // A worker that has its initial values may send factors before this one has its own.
  const int64_t current = std::max(fresh_iteration_, context_->start());
  if (envelope.iteration < current) return FrameStatus::kDuplicate;
  if (envelope.iteration > current + 1) return FrameStatus::kInvalid;
  if (arrivals_[envelope.iteration % 2].arrived[worker][factor]) return FrameStatus::kDuplicate;
  if (!envelope.body.phantom()) {
    Decode(codec_, envelope.body.bytes(), Slot(envelope.iteration, worker, factor));
  }
  context_->CountReceived(bucket_, envelope);
  if (plan().factor_ring() && worker != Right()) {
    SendTo(Right(), envelope.iteration, static_cast<int>(envelope.chunk), envelope.body, outbox);
  }
  return Mark(envelope.iteration, worker, factor, outbox);
}

FrameStatus FactorBroadcastSyncer::Mark(int64_t iteration, int worker, int factor, Outbox& outbox) {
  Arrivals& arrivals = arrivals_[iteration % 2];
  arrivals.arrived[worker][factor] = true;
  ++arrivals.count;
  if (iteration != fresh_iteration_ || arrivals.count < kFactors * context_->workers()) {
    return FrameStatus::kAccepted;
  }
  context_->Keep(bucket_, fresh_iteration_, 0, FloatCount(plan()));
  if (ProductUpdateOf(*context_, plan().first_layer())) {
    FinishIteration();
    return FrameStatus::kComplete;
  }
  outbox.work.push_back({.priority = PriorityOf(context_->plan.plan(), bucket_, iteration),
                         .parts = RebuildAndUpdate(),
                         .done = [this](Outbox&) { FinishIteration(); }});
  return FrameStatus::kAccepted;
}

void FactorBroadcastSyncer::FinishIteration() {
  Arrivals& arrivals = arrivals_[fresh_iteration_ % 2];
  arrivals.arrived.assign(context_->workers(), {false, false});
  arrivals.count = 0;
  sent_ = false;
  ++fresh_iteration_;
}

std::vector<SlicedArithmetic> FactorBroadcastSyncer::RebuildAndUpdate() const {
  const FactorStack& stack = memory().stacks[fresh_iteration_ % 2];
  const std::span<float> gradient = memory().gradients[fresh_iteration_ % 2];
  const int64_t rows = product().rows() * context_->workers();
  return {SlicedRebuild(product().outputs(), product().inputs(), rows, stack.u, stack.v, gradient),
          context_->SlicedUpdateOf(bucket_, fresh_iteration_, 0, FloatCount(plan()), gradient,
                                   1.0F / static_cast<float>(context_->workers()))};
}

std::vector<NodeId> FactorBroadcastSyncer::missing() const {
  std::vector<NodeId> workers;
  if (fresh_iteration_ < context_->start()) return initial_.missing();
  if (!sent_) return workers;
  const Arrivals& arrivals = arrivals_[fresh_iteration_ % 2];
  for (int worker = 0; worker < context_->workers(); ++worker) {
    if (!arrivals.arrived[worker][0] || !arrivals.arrived[worker][1]) {
      workers.push_back(context_->Worker(worker));
    }
  }
  return workers;
}

}  // namespace poseidon
