#include "client/factor_broadcast_syncer.h"

#include "client/rebuild.h"
#include "core/sum.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

constexpr int kFactors = 2;  // u, v

}  // namespace

FactorBroadcastSyncer::FactorBroadcastSyncer(std::shared_ptr<SyncContext> context, int layer)
    : context_(std::move(context)), layer_(layer) {
  for (Arrivals& arrivals : arrivals_) arrivals.arrived.resize(context_->workers());
  initial_outstanding_ = plan().chunks_size();
  initial_arrived_.resize(initial_outstanding_);
}

size_t FactorBroadcastSyncer::FactorFloats(int factor) const {
  const InnerProductSpec& product = spec().inner_product();
  return product.rows() * (factor == 0 ? product.outputs() : product.inputs());
}

std::span<float> FactorBroadcastSyncer::Slot(int64_t iteration, int worker, int factor) const {
  const FactorStack& stack = memory().stacks[iteration % 2];
  const size_t floats = FactorFloats(factor);
  return (factor == 0 ? stack.u : stack.v).subspan(worker * floats, floats);
}

Envelope FactorBroadcastSyncer::MakeFrame(MessageKind kind, int worker, int64_t iteration,
                                          int chunk) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = {{Role::kWorker, worker}, kFirstDataLane + plan().lane()};
  envelope.epoch = context_->epoch;
  envelope.iteration = iteration;
  envelope.bucket = static_cast<uint32_t>(layer_);
  envelope.chunk = static_cast<uint32_t>(chunk);
  envelope.priority = layer_;
  return envelope;
}

Reception FactorBroadcastSyncer::PublishInitial(Outbox& outbox) {
  for (int worker = 0; worker < context_->workers(); ++worker) {
    if (worker == context_->rank) continue;
    for (int c = 0; c < plan().chunks_size(); ++c) {
      const Chunk& chunk = plan().chunks(c);
      Envelope envelope = MakeFrame(MessageKind::kInitialValues, worker, 0, c);
      // Without a copy: these values change when all workers' first factors are here, so after all
      // have had their initial values.
      envelope.body =
          context_->phantom
              ? Payload::Phantom(chunk.size() * sizeof(float))
              : Payload::View(
                    std::span<const float>(memory().values.subspan(chunk.offset(), chunk.size())),
                    context_->memory);
      outbox.Send(std::move(envelope));
    }
  }
  fresh_iteration_ = 0;
  return Reception::kFresh;
}

Reception FactorBroadcastSyncer::Send(int64_t iteration, Outbox& outbox) {
  for (int worker = 0; worker < context_->workers(); ++worker) {
    if (worker == context_->rank) continue;
    for (int factor = 0; factor < kFactors; ++factor) {
      Envelope envelope = MakeFrame(MessageKind::kFactors, worker, iteration, factor);
      // Without a copy: this slot is written again two iterations later, which nobody reaches
      // before every worker has had these rows (client/model_memory.h).
      envelope.body =
          context_->phantom
              ? Payload::Phantom(FactorFloats(factor) * sizeof(float))
              : Payload::View(std::span<const float>(Slot(iteration, context_->rank, factor)),
                              context_->memory);
      context_->traffic[layer_].bytes_sent += static_cast<int64_t>(envelope.body.size());
      outbox.Send(std::move(envelope));
    }
  }
  sent_ = true;
  Mark(iteration, context_->rank, 0);
  return Mark(iteration, context_->rank, 1);
}

Reception FactorBroadcastSyncer::Receive(const Envelope& envelope, Outbox& outbox) {
  (void)outbox;
  if (envelope.kind == MessageKind::kInitialValues) return ReceiveInitial(envelope);
  if (envelope.kind == MessageKind::kFactors) return ReceiveFactor(envelope);
  return Reception::kForeign;
}

Reception FactorBroadcastSyncer::ReceiveInitial(const Envelope& envelope) {
  if (envelope.from.node != NodeId{Role::kWorker, 0} || envelope.chunk >= initial_arrived_.size()) {
    return Reception::kForeign;
  }
  const int c = static_cast<int>(envelope.chunk);
  if (envelope.body.size() != plan().chunks(c).size() * sizeof(float)) return Reception::kForeign;
  if (fresh_iteration_ >= 0 || initial_arrived_[c]) return Reception::kOld;
  initial_arrived_[c] = true;
  if (!context_->phantom) {
    Move(memory().values.subspan(plan().chunks(c).offset(), plan().chunks(c).size()),
         envelope.body);
  }
  if (--initial_outstanding_ > 0) return Reception::kTaken;
  fresh_iteration_ = 0;
  return Reception::kFresh;
}

Reception FactorBroadcastSyncer::ReceiveFactor(const Envelope& envelope) {
  const NodeId& from = envelope.from.node;
  if (from.role != Role::kWorker || from.rank < 0 || from.rank >= context_->workers() ||
      from.rank == context_->rank || envelope.chunk >= uint32_t{kFactors}) {
    return Reception::kForeign;
  }
  const int factor = static_cast<int>(envelope.chunk);
  if (envelope.body.size() != FactorFloats(factor) * sizeof(float)) return Reception::kForeign;
  // A worker that has its initial values may send factors before this one has its own.
  const int64_t current = std::max<int64_t>(fresh_iteration_, 0);
  if (envelope.iteration < current) return Reception::kOld;
  if (envelope.iteration > current + 1) return Reception::kForeign;
  if (arrivals_[envelope.iteration % 2].arrived[from.rank][factor]) return Reception::kOld;
  if (!context_->phantom) Move(Slot(envelope.iteration, from.rank, factor), envelope.body);
  context_->traffic[layer_].bytes_received += static_cast<int64_t>(envelope.body.size());
  return Mark(envelope.iteration, from.rank, factor);
}

Reception FactorBroadcastSyncer::Mark(int64_t iteration, int worker, int factor) {
  Arrivals& arrivals = arrivals_[iteration % 2];
  arrivals.arrived[worker][factor] = true;
  ++arrivals.count;
  if (iteration != fresh_iteration_ || arrivals.count < kFactors * context_->workers()) {
    return Reception::kTaken;
  }
  RebuildAndUpdate();
  arrivals.arrived.assign(context_->workers(), {false, false});
  arrivals.count = 0;
  sent_ = false;
  ++fresh_iteration_;
  return Reception::kFresh;
}

void FactorBroadcastSyncer::RebuildAndUpdate() {
  if (context_->phantom) return;
  const FactorStack& stack = memory().stacks[fresh_iteration_ % 2];
  RebuildGradient(spec().inner_product().outputs(), spec().inner_product().inputs(), stack.u,
                  stack.v, memory().gradient);
  const float learning_rate = LearningRate(context_->rule, fresh_iteration_);
  const float scale = 1.0F / static_cast<float>(context_->workers());
  const size_t state = StatePerParameter(context_->rule);
  size_t offset = 0;
  for (const BlobSpec& blob : spec().blobs()) {
    const size_t count = FloatCount(blob);
    Update(context_->rule, learning_rate, {blob.lr_mult(), blob.decay_mult()},
           memory().gradient.subspan(offset, count), scale, memory().values.subspan(offset, count),
           memory().history.subspan(offset * state, count * state));
    offset += count;
  }
}

void FactorBroadcastSyncer::Move(std::span<float> destination, const Payload& body) {
  if (!body.phantom()) CopyFrom(destination, body.bytes());
}

std::vector<NodeId> FactorBroadcastSyncer::missing() const {
  std::vector<NodeId> workers;
  if (fresh_iteration_ < 0) return {{Role::kWorker, 0}};
  if (!sent_) return workers;
  const Arrivals& arrivals = arrivals_[fresh_iteration_ % 2];
  for (int worker = 0; worker < context_->workers(); ++worker) {
    if (!arrivals.arrived[worker][0] || !arrivals.arrived[worker][1]) {
      workers.push_back({Role::kWorker, worker});
    }
  }
  return workers;
}

}  // namespace poseidon
