#include "client/sync/plan_transition.h"

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

void AddFloats(std::span<float> sum, std::span<const float> addend) {
  AddInto(sum, std::as_bytes(addend));
}

// Worker 0's optimizer state goes to all, but each has the mean gradient; and where worker 0 may be
// lost on the way, all take their own along.
bool MovesOptimizerState(const SyncContext& context) {
  return context.place == 0 || context.kept != nullptr || context.rule.type == "MeanGradient";
}

}  // namespace

int64_t PauseAgreement::Offer(int64_t iteration) {
  offered_ = iteration + kOfferedAhead;
  agreed_.reset();
  return *offered_;
}

void PlanTransition::SaveFrom(std::shared_ptr<const SyncContext> from, int64_t iteration) {
  from_ = std::move(from);
  to_.reset();
  state_ = OptimizerStatePerParameter(from_->rule);
  CountParameters(from_->plan.model());
  outstanding_ = 0;
  for (const int bucket : BucketsToFetch()) outstanding_ += from_->bucket(bucket).chunks_size();
  if (from_->phantom) return;
  SaveResidual();
  if (MovesOptimizerState(*from_)) SaveOptimizerState(iteration);
}

void PlanTransition::CountParameters(const ModelSpec& model) {
  begins_.assign(1, 0);
  for (const LayerSpec& layer : model.layers()) {
    begins_.push_back(begins_.back() + FloatCount(layer));
  }
}

void PlanTransition::LoadSnapshot(std::shared_ptr<const SyncContext> to,
                                  std::vector<float> optimizer_state) {
  to_ = std::move(to);
  state_ = OptimizerStatePerParameter(to_->rule);
  CountParameters(to_->plan.model());
  CHECK_EQ(static_cast<int64_t>(optimizer_state.size()), begins_.back() * state_);
  optimizer_state_ = std::make_shared<std::vector<float>>(std::move(optimizer_state));
  LoadOptimizerState();
}

int64_t PlanTransition::Begin(const SyncContext& context, int bucket) const {
  return begins_[context.bucket(bucket).first_layer()];
}

void PlanTransition::ReserveResidual(const BucketPlan& bucket) {
  residual_.resize(begins_.back());
  for (int i = 0; i < bucket.layer_count(); ++i) with_residual_.insert(bucket.first_layer() + i);
}

void PlanTransition::SaveResidual() {
  for (int index = 0; index < from_->plan.plan().buckets_size(); ++index) {
    const std::span<const float> unsent = from_->memory->bucket(index).residual;
    if (unsent.empty()) continue;
    ReserveResidual(from_->bucket(index));
    float* const owed = residual_.data() + Begin(*from_, index);
    for (size_t i = 0; i < unsent.size(); ++i) owed[i] += unsent[i];
  }
}

void PlanTransition::SaveOptimizerState(int64_t iteration) {
  optimizer_state_ = std::make_shared<std::vector<float>>(begins_.back() * state_);
  for (int bucket = 0; bucket < from_->plan.plan().buckets_size(); ++bucket) {
    const std::span<const float> own = from_->memory->bucket(bucket).optimizer_state[iteration % 2];
    std::copy(own.begin(), own.end(), optimizer_state_->begin() + Begin(*from_, bucket) * state_);
  }
}

std::vector<int> PlanTransition::BucketsToFetch() const {
  std::vector<int> buckets;
  if (from_->place != 0) return buckets;
  for (int bucket = 0; bucket < from_->plan.plan().buckets_size(); ++bucket) {
    if (FloatsKeptByServers(*from_, from_->bucket(bucket)) > 0) buckets.push_back(bucket);
  }
  return buckets;
}

void PlanTransition::Receive(const Envelope& envelope) {
  --outstanding_;
  if (envelope.body.phantom()) return;
  const int index = static_cast<int>(envelope.bucket);
  const BucketPlan& bucket = from_->bucket(index);
  const Chunk& chunk = bucket.chunks(static_cast<int>(envelope.chunk));
  const int64_t begin = Begin(*from_, index) + chunk.offset();
  if (bucket.update_at_workers()) {
    // What the server's codec has not sent of the sum is as good as a part of one worker's
    // gradient.
    ReserveResidual(bucket);
    AddInto(std::span(residual_).subspan(begin, chunk.size()), envelope.body.bytes());
  } else {
    CopyFrom(std::span(*optimizer_state_).subspan(begin * state_, chunk.size() * state_),
             envelope.body.bytes());
  }
}

void PlanTransition::LoadInto(std::shared_ptr<const SyncContext> to) {
  to_ = std::move(to);
  outstanding_ = 0;  // after a loss nobody fetches what the servers have
  if (to_->phantom) return from_.reset();
  if (to_->publishes_start()) {
    for (int layer = 0; layer + 1 < static_cast<int>(begins_.size()); ++layer) {
      Copy(from_->memory->values(layer), to_->memory->values(layer));
    }
  }
  if (MovesOptimizerState(*to_)) LoadOptimizerState();
  LoadResidual();
  from_.reset();
}

void PlanTransition::LoadResidual() {
  for (const int layer : with_residual_) {
    Owe(layer, std::span(residual_).subspan(begins_[layer], begins_[layer + 1] - begins_[layer]));
  }
  residual_ = {};
  with_residual_.clear();
  std::erase_if(owed_, [this](const auto& owed) {
    const LayerPlace& place = to_->memory->place(owed.first);
    const std::span<float> residual = to_->memory->bucket(place.bucket).residual;
    if (residual.empty()) return false;
    AddFloats(residual.subspan(place.offset, place.size), owed.second);
    return true;
  });
}

void PlanTransition::Owe(int layer, std::span<const float> unsent) {
  std::vector<float>& owed = owed_[layer];
  owed.resize(unsent.size());
  AddFloats(owed, unsent);
}

void PlanTransition::LoadOptimizerState() {
  for (int bucket = 0; bucket < to_->plan.plan().buckets_size(); ++bucket) {
    const std::span<float> own = to_->memory->bucket(bucket).optimizer_state[to_->start() % 2];
    Copy(std::span(*optimizer_state_).subspan(Begin(*to_, bucket) * state_, own.size()), own);
  }
}

Payload PlanTransition::optimizer_state(int bucket) const {
  if (to_ == nullptr) return {};
  const int64_t floats = FloatCount(to_->bucket(bucket)) * state_;
  if (to_->phantom) return Payload::Phantom(floats * sizeof(float));
  return Payload::View(
      std::span<const float>(*optimizer_state_).subspan(Begin(*to_, bucket) * state_, floats),
      optimizer_state_);
}

void PlanTransition::Release() {
  optimizer_state_.reset();
  to_.reset();
}

void PlanTransition::AddResidual(int layer, int64_t iteration, std::span<float> gradient) {
  if (gradient.empty() || !HasResidual(layer)) return;
  std::vector<float> owed = std::move(owed_.extract(layer).mapped());
  AddFloats(gradient, owed);
  added_[layer] = {iteration, std::move(owed)};
}

void PlanTransition::GoBack(int64_t iteration) {
  Release();
  from_.reset();
  outstanding_ = 0;
  residual_ = {};
  with_residual_.clear();
  for (const auto& [layer, added] : std::exchange(added_, {})) {
    if (added.iteration >= iteration) Owe(layer, added.floats);
  }
}

void PlanTransition::Forget(int64_t iteration) {
  std::erase_if(added_, [&](const auto& added) { return added.second.iteration < iteration; });
}

}  // namespace poseidon
