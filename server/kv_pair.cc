#include "server/kv_pair.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/arithmetic/sum.h"

namespace poseidon {
namespace {

// For the chunk's values, which the packed sums take the place of where the workers update.
int64_t ValueFloats(const KvPair::Options& options, int64_t size) {
  if (!options.update_at_workers) return size;
  const size_t packed = EncodedBytes(options.codec, size);
  return std::max(size, static_cast<int64_t>((packed + sizeof(float) - 1) / sizeof(float)));
}

// For the sum that goes to the backup.
int64_t SumFloats(const KvPair::Options& options, int64_t size) {
  return options.is_backup ? 0 : size;
}

}  // namespace

int KvPair::OpenIterations(int staleness) { return std::max(staleness, 0) + 1; }

int64_t KvPair::StateFloats(const Options& options, const UpdateRule& rule, int64_t size) {
  const int residual = NeedsErrorFeedback(options.codec) ? 1 : 0;
  return size * (options.update_at_workers ? residual : OptimizerStatePerParameter(rule));
}

int64_t KvPair::MemoryFloats(const Options& options, const UpdateRule& rule, int64_t size) {
  const int64_t kept = ValueFloats(options, size) + StateFloats(options, rule, size);
  if (options.keeps_residual) return kept + StateFloats(options, rule, size);
  if (!options.backed_up) return kept;
  return 2 * kept + SumFloats(options, size);
}

KvPair::KvPair(const Options& options, int64_t size, std::vector<UpdateSegment> segments,
               std::span<float> memory)
    : options_(options),
      size_(size),
      segments_(std::move(segments)),
      has_values_(options.workers_hold_values),
      has_state_(options.start_iteration == 0 || options.update_at_workers),
      iteration_(options.start_iteration),
      clocks_(options.workers, options.start_iteration),
      // Without synchronization a sum is of one gradient.
      sums_(OpenIterations(options.staleness),
            IterationSum(asynchronous() ? 1 : options.workers,
                         options.deterministic && !asynchronous(), options.codec, size)) {
  if (memory.empty()) return;
  if (options.backed_up) {
    last_sum_ = memory.last(SumFloats(options, size));
    memory = memory.first(memory.size() - last_sum_.size());
    previous_ = memory.last(memory.size() / 2);
    memory = memory.first(previous_.size());
  }
  values_ = memory.first(ValueFloats(options, size));
  if (options.keeps_residual) {
    previous_ = memory.last(static_cast<size_t>(size));
    memory = memory.first(memory.size() - previous_.size());
  }
  state_ = memory.subspan(values_.size());
}

bool KvPair::Initialize(const Payload& values) {
  if (has_values_ || values.size() != size_ * sizeof(float)) return false;
  if (!values.phantom()) CopyFrom(values_.first(size_), values.bytes());
  has_values_ = true;
  return true;
}

bool KvPair::InitializeState(const Payload& state, const UpdateRule& rule) {
  const size_t floats = StateFloats(options_, rule, size_);
  if (has_state_ || state.size() != floats * sizeof(float)) return false;
  if (!state.phantom()) CopyFrom(state_, state.bytes());
  has_state_ = true;
  return true;
}

GatherResult KvPair::Add(int worker, int64_t iteration, const Payload& gradient, Time now,
                         const UpdateRule& rule, AccumulatorPool& pool,
                         std::span<const ParameterGroup> groups) {
  int64_t& clock = clocks_[worker];
  if (iteration < clock) return {FrameStatus::kDuplicate, {}};
  // A worker can't be further than what it has been answered.
  const bool answered = asynchronous() || iteration <= iteration_ + options_.staleness;
  if (!initialized() || iteration > clock || !answered) return {FrameStatus::kInvalid, {}};
  IterationSum& sum = sums_[asynchronous() ? 0 : iteration % sums_.size()];
  if (!sum.Add(worker, gradient, pool)) return {FrameStatus::kInvalid, {}};
  ++clock;
  if (asynchronous()) return AddAsynchronous(worker, iteration, sum, now, rule, pool);
  if (iteration == iteration_ && sum.count() == 1) open_since_ = now;
  if (sum.complete())
    return {FrameStatus::kAccepted, CompleteOldest(worker, now, rule, pool, groups)};
  if (awaited(worker) <= iteration_) return {FrameStatus::kAccepted, {worker}};
  return {FrameStatus::kAccepted, {}};
}

GatherResult KvPair::AddAsynchronous(int worker, int64_t iteration, IterationSum& sum, Time now,
                                     const UpdateRule& rule, AccumulatorPool& pool) {
  if (heard_.empty()) heard_.assign(options_.workers, now);
  heard_[worker] = now;
  Apply(sum.sum(), iteration, rule, {});
  sum.Reset(pool);
  ++iteration_;
  if (!ended(worker)) return {FrameStatus::kAccepted, {worker}};
  std::vector<int> all(options_.workers);
  std::iota(all.begin(), all.end(), 0);
  const bool last = std::all_of(all.begin(), all.end(), [this](int other) { return ended(other); });
  return {FrameStatus::kAccepted, last ? all : std::vector<int>{}};
}

std::vector<int> KvPair::CompleteOldest(int last, Time now, const UpdateRule& rule,
                                        AccumulatorPool& pool,
                                        std::span<const ParameterGroup> groups) {
  IterationSum& sum = sums_[iteration_ % sums_.size()];
  Apply(sum.sum(), iteration_, rule, groups);
  sum.Reset(pool);
  ++iteration_;
  // The slowest have kept the others waiting for this iteration only from now on.
  if (open()) open_since_ = now;
  // This update is the one that the fastest have waited for; the rest were answered before.
  std::vector<int> answer;
  for (int worker = 0; worker < options_.workers; ++worker) {
    const bool released = awaited(worker) == iteration_;
    if (released || (worker == last && awaited(worker) < iteration_)) answer.push_back(worker);
  }
  return answer;
}

FrameStatus KvPair::Replicate(int64_t iteration, const Payload& sum, const UpdateRule& rule,
                              AccumulatorPool& pool, std::span<const ParameterGroup> groups) {
  if (iteration < iteration_) return FrameStatus::kDuplicate;
  if (!initialized() || iteration > iteration_ || sum.size() != size_ * sizeof(float)) {
    return FrameStatus::kInvalid;
  }
  if (!sum.phantom()) {
    const std::span<float> aligned = pool.Borrow(size_).first(size_);
    CopyFrom(aligned, sum.bytes());
    Apply(aligned, iteration, rule, groups);
    pool.Return(aligned);
  }
  ++iteration_;
  return FrameStatus::kAccepted;
}

std::optional<int64_t> KvPair::version() const {
  if (!initialized()) return std::nullopt;
  return iteration_;
}

std::optional<ChunkState> KvPair::At(int64_t iteration) const {
  if (!initialized()) return std::nullopt;
  const std::span<const float> values = options_.keeps_residual ? std::span<float>() : values_;
  if (iteration == iteration_) return ChunkState{values, state_};
  // What it began with has nothing before it.
  if (iteration != iteration_ - 1 || iteration < options_.start_iteration) return std::nullopt;
  if (previous_.empty()) return ChunkState{};
  return ChunkState{previous_.first(values.size()), previous_.subspan(values.size())};
}

void KvPair::Restore(const ChunkState& state) {
  std::ranges::copy(state.values, values_.begin());
  std::ranges::copy(state.optimizer_state, state_.begin());
  has_values_ = has_state_ = true;
}

void KvPair::Apply(std::span<float> sum, int64_t iteration, const UpdateRule& rule,
                   std::span<const ParameterGroup> groups) {
  if (sum.empty()) return;  // phantoms
  if (options_.update_at_workers) {
    if (options_.keeps_residual) std::ranges::copy(state_, previous_.begin());
    Encode(options_.codec, sum, state_,
           std::as_writable_bytes(values_).first(EncodedBytes(options_.codec, size_)));
    return;
  }
  if (options_.backed_up) {
    std::ranges::copy(values_, previous_.begin());
    std::ranges::copy(state_, previous_.begin() + static_cast<int64_t>(values_.size()));
    if (!options_.is_backup) std::ranges::copy(sum, last_sum_.begin());
  }
  const float share = 1.0F / static_cast<float>(options_.workers);
  if (!asynchronous()) {
    return UpdateSegmentwise(rule, iteration, segments_, sum, share, values_.first(size_), state_,
                             1.0F, groups);
  }
  // The plan starts with the state of as many updates as there were gradients before it.
  const int64_t before = options_.start_iteration * options_.workers;
  const int64_t updates = before + iteration_ - options_.start_iteration;
  const auto scale = static_cast<float>(share * RateForUpdates(rule, iteration, updates));
  UpdateSegmentwise(rule, iteration, segments_, sum, 1.0F, values_.first(size_), state_, scale,
                    groups);
}

size_t KvPair::answer_size() const {
  return answers_sums() ? EncodedBytes(options_.codec, size_) : size_ * sizeof(float);
}

std::span<const std::byte> KvPair::answer() const {
  if (values_.empty()) return {};
  return std::as_bytes(values_).first(answer_size());
}

bool KvPair::open() const {
  if (!asynchronous()) return sums_[iteration_ % sums_.size()].count() > 0;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!heard_.empty() && !ended(worker)) return true;
  }
  return false;
}

Time KvPair::open_since() const {
  if (!asynchronous()) return open_since_;
  Time earliest = Time::max();
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!ended(worker)) earliest = std::min(earliest, heard_[worker]);
  }
  return earliest;
}

std::vector<int> KvPair::missing() const {
  std::vector<int> missing;
  if (asynchronous()) {
    for (int worker = 0; open() && worker < options_.workers; ++worker) {
      if (!ended(worker) && heard_[worker] == open_since()) missing.push_back(worker);
    }
    return missing;
  }
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (clocks_[worker] <= iteration_) missing.push_back(worker);
  }
  return missing;
}

int64_t KvPair::awaited_iteration() const {
  if (!asynchronous()) return iteration_;
  int64_t awaited = std::numeric_limits<int64_t>::max();
  for (const int worker : missing()) awaited = std::min(awaited, clocks_[worker]);
  return awaited;
}

}  // namespace poseidon
