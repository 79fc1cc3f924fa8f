#include "server/kv_pair.h"

#include <glog/logging.h>

#include "core/sum.h"

namespace poseidon {

KvPair::KvPair(const Options& options, int64_t size, std::vector<Segment> segments,
               std::span<float> values, std::span<float> history)
    : options_(options),
      size_(size),
      segments_(std::move(segments)),
      values_(values),
      history_(history),
      arrived_(options.workers),
      early_(options.deterministic ? options.workers : 0) {}

bool KvPair::Initialize(const Payload& values) {
  if (initialized_ || values.size() != size_ * sizeof(float)) return false;
  if (!values.phantom()) CopyFrom(values_, values.bytes());
  initialized_ = true;
  return true;
}

KvPair::Outcome KvPair::Add(int worker, int64_t iteration, const Payload& gradient, Time now,
                            AccumulatorPool& pool) {
  if (iteration < iteration_) return Outcome::kOld;
  if (!initialized_ || iteration > iteration_ || gradient.size() != size_ * sizeof(float)) {
    return Outcome::kForeign;
  }
  if (arrived_[worker]) return Outcome::kOld;
  if (arrived_count_ == 0) opened_ = now;
  arrived_[worker] = true;
  ++arrived_count_;
  if (!gradient.phantom()) {
    if (options_.deterministic) {
      SumInOrder(worker, gradient, pool);
    } else {
      Sum(gradient, pool);
    }
  }
  return arrived_count_ == options_.workers ? Outcome::kComplete : Outcome::kCounted;
}

void KvPair::Sum(const Payload& gradient, AccumulatorPool& pool) {
  if (sum_.empty()) {
    sum_ = pool.Borrow(size_);
    CopyFrom(sum_, gradient.bytes());
  } else {
    AddInto(sum_, gradient.bytes());
  }
}

void KvPair::SumInOrder(int worker, const Payload& gradient, AccumulatorPool& pool) {
  early_[worker] = gradient;
  while (next_in_order_ < options_.workers && early_[next_in_order_].size() > 0) {
    Sum(early_[next_in_order_], pool);
    early_[next_in_order_] = {};
    ++next_in_order_;
  }
}

void KvPair::Update(const UpdateRule& rule, AccumulatorPool& pool) {
  CHECK_EQ(arrived_count_, options_.workers);
  if (!sum_.empty()) {
    const float learning_rate = LearningRate(rule, iteration_);
    const float scale = 1.0F / static_cast<float>(options_.workers);
    const size_t state = StatePerParameter(rule);
    size_t offset = 0;
    for (const Segment& segment : segments_) {
      const size_t size = segment.size;
      poseidon::Update(rule, learning_rate, segment.multipliers, sum_.subspan(offset, size), scale,
                       values_.subspan(offset, size),
                       history_.subspan(offset * state, size * state));
      offset += size;
    }
    pool.Return(sum_);
    sum_ = {};
  }
  ++iteration_;
  arrived_.assign(arrived_.size(), false);
  arrived_count_ = 0;
  next_in_order_ = 0;
}

std::vector<int> KvPair::missing() const {
  std::vector<int> missing;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!arrived_[worker]) missing.push_back(worker);
  }
  return missing;
}

}  // namespace poseidon
