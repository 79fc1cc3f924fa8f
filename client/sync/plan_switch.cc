#include "client/sync/plan_switch.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "core/arithmetic/sum.h"
#include "proto/bucket.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// The answer to an offer takes a round trip to the scheduler, and the next iteration may begin at
// once. The one after it is an iteration away, so hardly anybody waits for the answer.
constexpr int64_t kOfferedAhead = 2;

void Copy(std::span<const float> from, std::span<float> to) {
  CHECK_EQ(from.size(), to.size());
  std::copy(from.begin(), from.end(), to.begin());
}

// Worker 0's optimiser state goes to all, but each has the mean gradient.
bool MovesHistory(const SyncContext& context) {
  return context.rank == 0 || context.rule.type == "MeanGradient";
}

}  // namespace

int64_t PauseAgreement::Offer(int64_t iteration) {
  offered_ = iteration + kOfferedAhead;
  agreed_.reset();
  return *offered_;
}

void MovedState::Leave(std::shared_ptr<const SyncContext> from) {
  from_ = std::move(from);
  to_.reset();
  state_ = StatePerParameter(from_->rule);
  CountParameters(from_->plan.model());
  for (const int bucket : ToFetch()) outstanding_ += from_->bucket(bucket).chunks_size();
  if (from_->phantom) return;
  LeaveResidual();
  if (MovesHistory(*from_)) LeaveHistory();
}

void MovedState::CountParameters(const ModelSpec& model) {
  begins_.assign(1, 0);
  for (const LayerSpec& layer : model.layers()) {
    begins_.push_back(begins_.back() + FloatCount(layer));
  }
}

void MovedState::Restore(std::shared_ptr<const SyncContext> to, std::vector<float> history) {
  to_ = std::move(to);
  state_ = StatePerParameter(to_->rule);
  CountParameters(to_->plan.model());
  CHECK_EQ(static_cast<int64_t>(history.size()), begins_.back() * state_);
  history_ = std::make_shared<std::vector<float>>(std::move(history));
  PlaceHistory();
}

int64_t MovedState::Begin(const SyncContext& context, int bucket) const {
  return begins_[context.bucket(bucket).first_layer()];
}

void MovedState::OweResidual(const BucketPlan& bucket) {
  residual_.resize(begins_.back());
  for (int i = 0; i < bucket.layer_count(); ++i) owed_.insert(bucket.first_layer() + i);
}

void MovedState::LeaveResidual() {
  for (int index = 0; index < from_->plan.plan().buckets_size(); ++index) {
    const std::span<const float> unsent = from_->memory->bucket(index).residual;
    if (unsent.empty()) continue;
    OweResidual(from_->bucket(index));
    float* const owed = residual_.data() + Begin(*from_, index);
    for (size_t i = 0; i < unsent.size(); ++i) owed[i] += unsent[i];
  }
}

void MovedState::LeaveHistory() {
  history_ = std::make_shared<std::vector<float>>(begins_.back() * state_);
  for (int bucket = 0; bucket < from_->plan.plan().buckets_size(); ++bucket) {
    const std::span<const float> own = from_->memory->bucket(bucket).history;
    std::copy(own.begin(), own.end(), history_->begin() + Begin(*from_, bucket) * state_);
  }
}

std::vector<int> MovedState::ToFetch() const {
  std::vector<int> buckets;
  if (from_->rank != 0) return buckets;
  for (int bucket = 0; bucket < from_->plan.plan().buckets_size(); ++bucket) {
    if (FloatsKeptByServers(*from_, from_->bucket(bucket)) > 0) buckets.push_back(bucket);
  }
  return buckets;
}

void MovedState::Take(const Envelope& envelope) {
  --outstanding_;
  if (envelope.body.phantom()) return;
  const int index = static_cast<int>(envelope.bucket);
  const BucketPlan& bucket = from_->bucket(index);
  const Chunk& chunk = bucket.chunks(static_cast<int>(envelope.chunk));
  const int64_t begin = Begin(*from_, index) + chunk.offset();
  if (bucket.update_at_workers()) {
    // What the server's codec has not sent of the sum is as good as a part of one worker's
    // gradient.
    OweResidual(bucket);
    AddInto(std::span(residual_).subspan(begin, chunk.size()), envelope.body.bytes());
  } else {
    CopyFrom(std::span(*history_).subspan(begin * state_, chunk.size() * state_),
             envelope.body.bytes());
  }
}

void MovedState::Enter(std::shared_ptr<const SyncContext> to) {
  to_ = std::move(to);
  if (to_->phantom) return from_.reset();
  if (to_->rank == 0) {
    for (int layer = 0; layer + 1 < static_cast<int>(begins_.size()); ++layer) {
      Copy(from_->memory->values(layer), to_->memory->values(layer));
    }
  }
  if (MovesHistory(*to_)) PlaceHistory();
  PlaceResidual();
  from_.reset();
}

void MovedState::PlaceResidual() {
  for (int layer = 0; layer + 1 < static_cast<int>(begins_.size()); ++layer) {
    const LayerPlace& place = to_->memory->place(layer);
    const std::span<float> residual = to_->memory->bucket(place.bucket).residual;
    if (!residual.empty()) AddResidual(layer, residual.subspan(place.offset, place.size));
  }
}

void MovedState::PlaceHistory() {
  for (int bucket = 0; bucket < to_->plan.plan().buckets_size(); ++bucket) {
    const std::span<float> own = to_->memory->bucket(bucket).history;
    Copy(std::span(*history_).subspan(Begin(*to_, bucket) * state_, own.size()), own);
  }
}

Payload MovedState::history(int bucket) const {
  if (to_ == nullptr) return {};
  const int64_t floats = FloatCount(to_->bucket(bucket)) * state_;
  if (to_->phantom) return Payload::Phantom(floats * sizeof(float));
  return Payload::View(
      std::span<const float>(*history_).subspan(Begin(*to_, bucket) * state_, floats), history_);
}

void MovedState::Release() {
  history_.reset();
  to_.reset();
}

void MovedState::AddResidual(int layer, std::span<float> gradient) {
  if (gradient.empty() || owed_.erase(layer) == 0) return;
  float* const owed = residual_.data() + begins_[layer];
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += std::exchange(owed[i], 0.0F);
  if (owed_.empty()) residual_ = {};
}

}  // namespace poseidon
