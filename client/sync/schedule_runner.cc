#include "client/sync/schedule_runner.h"

#include <glog/logging.h>

#include <utility>

#include "core/arithmetic/sum.h"

namespace poseidon {
namespace {

// The owner goes with them, so that whoever waits for its release waits until they have left.
struct Encoded {
  std::shared_ptr<std::byte[]> bytes;
  std::shared_ptr<const void> owner;
};

}  // namespace

ScheduleRunner::ScheduleRunner(Steps steps, const Codec& codec, float scale, int64_t first)
    : steps_(std::move(steps)), codec_(codec), scale_(scale), next_(steps_.size()), begun_(first) {}

void ScheduleRunner::Begin(std::span<float> floats, std::shared_ptr<const void> owner,
                           std::vector<ReduceFrame>& out) {
  CHECK(done());
  floats_ = floats;
  owner_ = std::move(owner);
  next_ = 0;
  ++begun_;
  Advance(out);
}

FrameStatus ScheduleRunner::Receive(int64_t iteration, int peer, int step, const Payload& body,
                                    std::vector<ReduceFrame>& out) {
  // The iteration whose frames can still be used.
  const int64_t current = done() ? begun_ : begun_ - 1;
  if (iteration < current) return FrameStatus::kDuplicate;
  if (iteration > begun_) return FrameStatus::kInvalid;
  const std::optional<int> index = steps_.Awaiting(peer, step);
  if (!index) return FrameStatus::kInvalid;
  const Operation operation = steps_.At(*index);
  if (operation.range.size == 0 || body.size() != EncodedBytes(codec_, operation.range.size)) {
    return FrameStatus::kInvalid;
  }
  const bool running = iteration == begun_ - 1;
  if (running && *index < next_) return FrameStatus::kDuplicate;
  if (running && *index == next_) {
    Take(operation, body);
    ++next_;
    Advance(out);
    return FrameStatus::kAccepted;
  }
  return early(iteration).emplace(*index, body).second ? FrameStatus::kAccepted
                                                       : FrameStatus::kDuplicate;
}

std::optional<int> ScheduleRunner::missing() const {
  if (done()) return std::nullopt;
  return steps_.At(next_).peer;
}

void ScheduleRunner::Advance(std::vector<ReduceFrame>& out) {
  Early& arrived = early(begun_ - 1);
  for (; next_ < steps_.size(); ++next_) {
    const Operation operation = steps_.At(next_);
    if (operation.range.size == 0) continue;
    if (operation.kind == Operation::Kind::kSend) {
      out.push_back({operation.peer, operation.step, Body(operation.range)});
    } else if (operation.kind == Operation::Kind::kRound) {
      Finish(operation.range);
    } else {
      const auto frame = arrived.find(next_);
      if (frame == arrived.end()) return;
      Take(operation, frame->second);
      arrived.erase(frame);
    }
  }
  owner_.reset();
}

Payload ScheduleRunner::Body(const Range& range) const {
  const size_t bytes = EncodedBytes(codec_, range.size);
  if (floats_.empty()) return Payload::Phantom(bytes);
  const std::span<float> floats = floats_.subspan(range.offset, range.size);
  if (codec_.type == CodecType::kFp32) {
    return Payload::View(std::span<const float>(floats), owner_);
  }
  auto encoded = std::make_shared<Encoded>(
      Encoded{std::make_shared_for_overwrite<std::byte[]>(bytes), owner_});
  const std::span<std::byte> out(encoded->bytes.get(), bytes);
  Encode(codec_, floats, {}, out);
  return Payload::View(out, std::move(encoded));
}

void ScheduleRunner::Take(const Operation& operation, const Payload& body) {
  if (body.phantom()) return;
  const std::span<float> floats = floats_.subspan(operation.range.offset, operation.range.size);
  if (operation.kind == Operation::Kind::kAdd) {
    AddDecoded(codec_, body.bytes(), floats);
  } else {
    Decode(codec_, body.bytes(), floats);
  }
}

void ScheduleRunner::Finish(const Range& range) {
  if (floats_.empty()) return;
  const std::span<float> floats = floats_.subspan(range.offset, range.size);
  if (scale_ != 1) {
    for (float& value : floats) value *= scale_;
  }
  if (codec_.type != CodecType::kFp32) Round(codec_, floats);
}

}  // namespace poseidon
