#include "server/factor_layer.h"

#include <algorithm>

#include "core/arithmetic/rebuild.h"
#include "core/arithmetic/sum.h"

namespace poseidon {
namespace {

// Floats of one worker's factor.
int64_t FactorFloats(const FactorLayer::Shape& shape, uint32_t factor) {
  return shape.rows * (factor == 0 ? shape.outputs : shape.inputs);
}

}  // namespace

int64_t FactorLayer::MemoryFloats(const Shape& shape, const UpdateRule& rule) {
  // Values, optimizer state, likewise before the last update, the summed gradient; the stacks.
  const int copies = shape.backed_up ? 2 : 1;
  return shape.floats * (copies * (1 + OptimizerStatePerParameter(rule)) + 1) +
         shape.workers * (FactorFloats(shape, 0) + FactorFloats(shape, 1));
}

FactorLayer::FactorLayer(const Shape& shape, std::vector<Chunk> chunks,
                         std::vector<UpdateSegment> segments, std::span<float> memory)
    : shape_(shape),
      chunks_(std::move(chunks)),
      segments_(std::move(segments)),
      has_values_(chunks_.size()),
      has_state_(chunks_.size(), shape.start_iteration == 0),
      iteration_(shape.start_iteration),
      arrived_(shape.workers) {
  if (memory.empty()) return;
  const auto take_last = [&memory](int64_t floats) {
    const std::span<float> last = memory.last(floats);
    memory = memory.first(memory.size() - last.size());
    return last;
  };
  for (uint32_t factor = 0; factor < kFactors; ++factor) {
    stacks_[factor] = take_last(shape.workers * FactorFloats(shape, factor));
  }
  gradient_ = take_last(shape.floats);
  if (shape.backed_up) {
    const std::span<float> previous = take_last(static_cast<int64_t>(memory.size()) / 2);
    previous_values_ = previous.first(shape.floats);
    previous_state_ = previous.subspan(shape.floats);
  }
  values_ = memory.first(shape.floats);
  optimizer_state_ = memory.subspan(shape.floats);
}

bool FactorLayer::initialized() const {
  const auto all = [](const std::vector<bool>& chunks) {
    return std::find(chunks.begin(), chunks.end(), false) == chunks.end();
  };
  return all(has_values_) && all(has_state_);
}

bool FactorLayer::Initialize(uint32_t chunk, const Payload& values) {
  if (chunk >= chunks_.size() || has_values_[chunk] ||
      values.size() != chunks_[chunk].size() * sizeof(float)) {
    return false;
  }
  if (!values.phantom()) {
    CopyFrom(values_.subspan(chunks_[chunk].offset(), chunks_[chunk].size()), values.bytes());
  }
  has_values_[chunk] = true;
  return true;
}

bool FactorLayer::InitializeState(uint32_t chunk, const Payload& state, const UpdateRule& rule) {
  if (chunk >= chunks_.size() || has_state_[chunk] ||
      state.size() != chunks_[chunk].size() * OptimizerStatePerParameter(rule) * sizeof(float)) {
    return false;
  }
  if (!state.phantom()) CopyFrom(StateOf(chunk, optimizer_state_), state.bytes());
  has_state_[chunk] = true;
  return true;
}

FrameStatus FactorLayer::Add(int worker, int64_t iteration, uint32_t factor, const Payload& body,
                             Time now) {
  if (iteration < iteration_) return FrameStatus::kDuplicate;
  if (!initialized() || iteration > iteration_ || factor >= kFactors ||
      body.size() != FactorFloats(shape_, factor) * sizeof(float)) {
    return FrameStatus::kInvalid;
  }
  bool& arrived = arrived_[worker][factor];
  if (arrived) return FrameStatus::kDuplicate;
  arrived = true;
  if (arrived_count_ == 0) open_since_ = now;
  Store(worker, factor, body);
  ++arrived_count_;
  return FrameStatus::kAccepted;
}

void FactorLayer::Store(int worker, uint32_t factor, const Payload& body) {
  if (body.phantom()) return;
  const int64_t floats = FactorFloats(shape_, factor);
  CopyFrom(stacks_[factor].subspan(worker * floats, floats), body.bytes());
}

std::vector<SlicedArithmetic> FactorLayer::RebuildAndUpdate(const UpdateRule& rule) {
  SlicedArithmetic rebuild =
      SlicedRebuild(shape_.outputs, shape_.inputs, shape_.rows * shape_.workers, stacks_[0],
                    stacks_[1], gradient_);
  if (values_.empty()) return {std::move(rebuild), SlicedUpdate(shape_.floats, {})};  // phantoms
  const auto update = [this, &rule](int64_t offset, int64_t size) {
    const int64_t state = OptimizerStatePerParameter(rule);
    const std::span<float> values = values_.subspan(offset, size);
    const std::span<float> own_state = optimizer_state_.subspan(offset * state, size * state);
    if (shape_.backed_up) {
      std::ranges::copy(values, previous_values_.begin() + offset);
      std::ranges::copy(own_state, previous_state_.begin() + offset * state);
    }
    UpdateSegmentwise(rule, iteration_, CutSegments(segments_, offset, size),
                      gradient_.subspan(offset, size), 1.0F / static_cast<float>(shape_.workers),
                      values, own_state);
  };
  return {std::move(rebuild), SlicedUpdate(shape_.floats, update)};
}

void FactorLayer::Finish() {
  ++iteration_;
  arrived_.assign(arrived_.size(), {false, false});
  arrived_count_ = 0;
}

std::span<float> FactorLayer::ValuesOf(uint32_t chunk, std::span<float> all) const {
  if (all.empty()) return {};
  return all.subspan(chunks_[chunk].offset(), chunks_[chunk].size());
}

std::span<float> FactorLayer::StateOf(uint32_t chunk, std::span<float> all) const {
  if (all.empty()) return {};
  const int64_t state = static_cast<int64_t>(all.size()) / shape_.floats;
  return all.subspan(chunks_[chunk].offset() * state, chunks_[chunk].size() * state);
}

std::span<const float> FactorLayer::values(uint32_t chunk) const {
  return ValuesOf(chunk, values_);
}

std::span<const float> FactorLayer::state(uint32_t chunk) const {
  return StateOf(chunk, optimizer_state_);
}

std::optional<int64_t> FactorLayer::version(uint32_t chunk) const {
  if (!initialized(chunk)) return std::nullopt;
  return iteration_;
}

std::optional<ChunkState> FactorLayer::At(uint32_t chunk, int64_t iteration) const {
  if (!initialized(chunk)) return std::nullopt;
  if (iteration == iteration_) return ChunkState{values(chunk), state(chunk)};
  // What it began with has nothing before it.
  if (iteration != iteration_ - 1 || iteration < shape_.start_iteration) return std::nullopt;
  return ChunkState{ValuesOf(chunk, previous_values_), StateOf(chunk, previous_state_)};
}

void FactorLayer::Restore(uint32_t chunk, const ChunkState& before) {
  std::ranges::copy(before.values, ValuesOf(chunk, values_).begin());
  std::ranges::copy(before.optimizer_state, StateOf(chunk, optimizer_state_).begin());
  has_values_[chunk] = true;
  has_state_[chunk] = true;
}

std::vector<int> FactorLayer::missing() const {
  std::vector<int> missing;
  for (int worker = 0; worker < shape_.workers; ++worker) {
    if (!arrived_[worker][0] || !arrived_[worker][1]) missing.push_back(worker);
  }
  return missing;
}

}  // namespace poseidon
