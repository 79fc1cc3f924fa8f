#include "client/schedule_runner.h"

#include <glog/logging.h>

#include <algorithm>

#include "core/sum.h"

namespace poseidon {

ScheduleRunner::ScheduleRunner(Schedule schedule, const CodecSpec& codec, float scale,
                               int64_t first)
    : schedule_(std::move(schedule)),
      codec_(codec),
      scale_(scale),
      begun_(first),
      next_(schedule_.size()) {
  for (const Operation& operation : schedule_) {
    if (!Receives(operation)) continue;
    const bool alone =
        expected_.emplace(Key{operation.peer, operation.step}, operation.range.size).second;
    CHECK(alone) << "a schedule receives step " << operation.step << " twice";
  }
}

bool ScheduleRunner::Receives(const Operation& operation) const {
  return operation.kind == Operation::Kind::kAdd || operation.kind == Operation::Kind::kCopy;
}

void ScheduleRunner::Begin(std::span<float> floats, std::shared_ptr<const void> owner,
                           std::vector<ReduceFrame>& out) {
  CHECK(done());
  floats_ = floats;
  owner_ = std::move(owner);
  taken_.clear();
  next_ = 0;
  ++begun_;
  Advance(out);
}

ScheduleRunner::Outcome ScheduleRunner::Receive(int64_t iteration, int peer, int step,
                                                const Payload& body,
                                                std::vector<ReduceFrame>& out) {
  // The iteration whose frames can still be used.
  const int64_t current = done() ? begun_ : begun_ - 1;
  if (iteration < current) return Outcome::kOld;
  if (iteration > begun_) return Outcome::kForeign;
  const Key key{peer, step};
  const auto expected = expected_.find(key);
  if (expected == expected_.end() || body.size() != EncodedBytes(codec_, expected->second)) {
    return Outcome::kForeign;
  }
  if (iteration == begun_ - 1 && taken_.contains(key)) return Outcome::kOld;
  if (!early(iteration).emplace(key, body).second) return Outcome::kOld;
  if (iteration == begun_ - 1) Advance(out);
  return Outcome::kTaken;
}

std::optional<int> ScheduleRunner::missing() const {
  if (done()) return std::nullopt;
  return schedule_[next_].peer;
}

void ScheduleRunner::Advance(std::vector<ReduceFrame>& out) {
  std::map<Key, Payload>& arrived = early(begun_ - 1);
  for (; next_ < schedule_.size(); ++next_) {
    const Operation& operation = schedule_[next_];
    if (operation.kind == Operation::Kind::kSend) {
      out.push_back({operation.peer, operation.step, Body(operation.range)});
    } else if (operation.kind == Operation::Kind::kRound) {
      Finish(operation.range);
    } else {
      const auto frame = arrived.find({operation.peer, operation.step});
      if (frame == arrived.end()) return;
      Take(operation, frame->second);
      taken_.insert(frame->first);
      arrived.erase(frame);
    }
  }
  owner_.reset();
}

Payload ScheduleRunner::Body(const Range& range) const {
  const size_t bytes = EncodedBytes(codec_, range.size);
  if (floats_.empty()) return Payload::Phantom(bytes);
  const std::span<float> floats = floats_.subspan(range.offset, range.size);
  if (codec_.codec == Codec::kFp32) {
    return Payload::View(std::span<const float>(floats), owner_);
  }
  auto encoded = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> out(encoded.get(), bytes);
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
  if (codec_.codec != Codec::kFp32) Round(codec_, floats);
}

}  // namespace poseidon
