#include "client/communicator/collective_lane.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace poseidon {
namespace {

// Chunks: while one's frame is on the wire another's is added and a third's waits to be sent, and
// one to spare. Between 2 and 8 no difference was measured.
constexpr size_t kUnderWay = 4;

std::string Advice() { return "; all ranks must make the same calls in the same order"; }

}  // namespace

CollectiveLane::CollectiveLane(const CollectiveCall& call, int rank, int workers, int lane,
                               int lanes)
    : call_(call), rank_(rank), workers_(workers), lane_(lane), lanes_(lanes) {}

void CollectiveLane::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kGradientReady) {
    BeginCall(outbox);
  } else if (envelope.kind == MessageKind::kReduce) {
    Receive(envelope, outbox);
  } else if (envelope.kind == MessageKind::kRegister && envelope.from.node.role == Role::kWorker &&
             envelope.from.node.rank == rank_) {
    std::erase_if(early_, [rank = static_cast<int>(envelope.chunk)](const Envelope& frame) {
      return frame.from.node.rank == rank;
    });
  }
}

void CollectiveLane::BeginCall(Outbox& outbox) {
  number_ = call_.number;
  begun_ = finished_ = 0;
  for (size_t c = lane_; c < call_.chunks.size(); c += lanes_) {
    parts_.push_back({static_cast<uint32_t>(c),
                      ScheduleRunner(call_.chunks[c], Codec{.type = call_.terms.codec}, 1)});
  }
  Proceed(outbox);
  std::vector<Envelope> frames = std::exchange(early_, {});
  for (const Envelope& frame : frames) Receive(frame, outbox);
}

void CollectiveLane::Receive(const Envelope& envelope, Outbox& outbox) {
  const NodeId& node = envelope.from.node;
  if (node.role != Role::kWorker || node.rank < 0 || node.rank >= workers_ || node.rank == rank_) {
    return;
  }
  if (envelope.iteration > number_) {
    early_.push_back(envelope);
  } else if (envelope.iteration == number_ && !parts_.empty()) {
    Take(envelope, outbox);
  }
}

void CollectiveLane::Take(const Envelope& envelope, Outbox& outbox) {
  const std::string rank = "rank " + std::to_string(envelope.from.node.rank);
  if (envelope.epoch != call_.terms.Pack()) {
    const CallTerms theirs = CallTerms::Unpack(envelope.epoch);
    const bool same = theirs.ToString() == call_.terms.ToString();
    throw ProtocolError(
        rank + " calls " + theirs.ToString() + ", this rank " + call_.terms.ToString() +
        (same ? " with another grid, other chunks or other blocks" : "") + Advice());
  }
  const size_t index = envelope.chunk / lanes_;
  const bool mine = static_cast<int>(envelope.chunk % lanes_) == lane_ && index < parts_.size();
  if (mine) {
    ScheduleRunner& runner = parts_[index].runner;
    const bool running = runner.begun() > 0 && !runner.done();
    const auto outcome = runner.Receive(0, envelope.from.node.rank, static_cast<int>(envelope.step),
                                        envelope.body, frames_);
    if (outcome == FrameStatus::kDuplicate) return;
    if (outcome == FrameStatus::kAccepted) {
      SendFrames(parts_[index], outbox);
      if (running && runner.done()) {
        ++finished_;
        Proceed(outbox);
      }
      return;
    }
  }
  throw ProtocolError(rank + " sent " + std::to_string(envelope.body.size()) + " bytes for step " +
                      std::to_string(envelope.step) + " of chunk " +
                      std::to_string(envelope.chunk) + " in " + call_.terms.ToString() +
                      ", which no rank would: does it run another version?");
}

void CollectiveLane::Proceed(Outbox& outbox) {
  while (begun_ < parts_.size() && begun_ - finished_ < kUnderWay) {
    Part& part = parts_[begun_++];
    part.runner.Begin(call_.floats, call_.lease, frames_);
    SendFrames(part, outbox);
    // What had come before it began may have been enough.
    if (part.runner.done()) ++finished_;
  }
  if (finished_ < parts_.size()) return;
  parts_.clear();
  Envelope done;
  done.kind = MessageKind::kBucketFresh;
  done.to = Here(kApplicationLane);
  done.iteration = number_;
  outbox.Send(std::move(done));
}

void CollectiveLane::SendFrames(const Part& part, Outbox& outbox) {
  for (ReduceFrame& frame : frames_) {
    Envelope envelope;
    envelope.kind = MessageKind::kReduce;
    envelope.to = {{Role::kWorker, frame.peer}, kFirstDataLane + lane_};
    envelope.epoch = call_.terms.Pack();
    envelope.iteration = number_;
    envelope.chunk = part.chunk;
    envelope.step = static_cast<uint32_t>(frame.step);
    // A chunk that began earlier goes on first, so that what was just added is still in the cache.
    envelope.priority = part.chunk;
    envelope.body = std::move(frame.body);
    outbox.Send(std::move(envelope));
  }
  frames_.clear();
}

}  // namespace poseidon
