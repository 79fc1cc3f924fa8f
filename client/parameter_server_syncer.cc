#include "client/parameter_server_syncer.h"

#include <algorithm>

#include "core/sum.h"

namespace poseidon {

bool ParameterServerSyncer::Needed(const Plan& plan, int layer, int lane) {
  const auto& chunks = plan.layers(layer).chunks();
  return plan.layers(layer).scheme() == PS &&
         std::any_of(chunks.begin(), chunks.end(),
                     [lane](const Chunk& chunk) { return chunk.lane() == lane; });
}

ParameterServerSyncer::ParameterServerSyncer(std::shared_ptr<SyncContext> context, int layer,
                                             int lane)
    : context_(std::move(context)), layer_(layer), lane_(lane) {
  for (int c = 0; c < plan().chunks_size(); ++c) {
    if (plan().chunks(c).lane() == lane_) chunks_.push_back(c);
  }
  arrived_.resize(plan().chunks_size());
  outstanding_ = static_cast<int>(chunks_.size());
  waiting_ = true;  // for the initial values, which come without being asked for
}

void ParameterServerSyncer::SendChunks(MessageKind kind, int64_t iteration, std::span<float> floats,
                                       Outbox& outbox) {
  for (const int c : chunks_) {
    const Chunk& chunk = plan().chunks(c);
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = {{Role::kServer, chunk.server()}, kFirstDataLane + lane_};
    envelope.epoch = context_->epoch;
    envelope.iteration = iteration;
    envelope.bucket = static_cast<uint32_t>(layer_);
    envelope.chunk = static_cast<uint32_t>(c);
    envelope.priority = layer_;
    // Sent without a copy: the engine writes the next gradient only after the values that answer
    // this one have come, so after the server has it.
    envelope.body =
        context_->phantom
            ? Payload::Phantom(chunk.size() * sizeof(float))
            : Payload::View(std::span<const float>(floats.subspan(chunk.offset(), chunk.size())),
                            context_->memory);
    outbox.Send(std::move(envelope));
  }
}

Reception ParameterServerSyncer::PublishInitial(Outbox& outbox) {
  SendChunks(MessageKind::kInitialValues, 0, context_->memory->layer(layer_).values, outbox);
  return Reception::kTaken;
}

Reception ParameterServerSyncer::Send(int64_t iteration, Outbox& outbox) {
  SendChunks(MessageKind::kGradient, iteration, context_->memory->layer(layer_).gradient, outbox);
  int64_t floats = 0;
  for (const int c : chunks_) floats += plan().chunks(c).size();
  context_->traffic[layer_].bytes_sent += floats * static_cast<int64_t>(sizeof(float));
  waiting_ = true;
  return Reception::kTaken;
}

Reception ParameterServerSyncer::Receive(const Envelope& envelope, Outbox& outbox) {
  (void)outbox;
  if (envelope.kind != MessageKind::kValues || envelope.chunk >= arrived_.size()) {
    return Reception::kForeign;
  }
  const int c = static_cast<int>(envelope.chunk);
  const Chunk& chunk = plan().chunks(c);
  if (chunk.lane() != lane_ || envelope.from.node != NodeId{Role::kServer, chunk.server()} ||
      envelope.body.size() != chunk.size() * sizeof(float)) {
    return Reception::kForeign;
  }
  if (envelope.iteration <= fresh_iteration_) return Reception::kOld;
  if (!waiting_ || envelope.iteration > fresh_iteration_ + 1) return Reception::kForeign;
  if (arrived_[c]) return Reception::kOld;
  arrived_[c] = true;
  Move(chunk, envelope.body);
  if (envelope.iteration > 0) {
    context_->traffic[layer_].bytes_received += static_cast<int64_t>(envelope.body.size());
  }
  if (--outstanding_ > 0) return Reception::kTaken;
  arrived_.assign(arrived_.size(), false);
  outstanding_ = static_cast<int>(chunks_.size());
  waiting_ = false;
  ++fresh_iteration_;
  return Reception::kFresh;
}

void ParameterServerSyncer::Move(const Chunk& chunk, const Payload& values) {
  if (values.phantom()) return;
  CopyFrom(context_->memory->layer(layer_).values.subspan(chunk.offset(), chunk.size()),
           values.bytes());
}

std::vector<NodeId> ParameterServerSyncer::missing() const {
  std::vector<NodeId> servers;
  if (!waiting_) return servers;
  for (const int c : chunks_) {
    const NodeId server{Role::kServer, plan().chunks(c).server()};
    if (!arrived_[c] && std::find(servers.begin(), servers.end(), server) == servers.end()) {
      servers.push_back(server);
    }
  }
  return servers;
}

}  // namespace poseidon
