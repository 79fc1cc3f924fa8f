#include "client/sync/kept_state.h"

#include <glog/logging.h>

#include <algorithm>
#include <new>

#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "proto/bucket.h"
#include "proto/update_rule_message.h"

namespace poseidon {

KeptState::KeptState(std::shared_ptr<const wire::PlanAndModel> plan,
                     std::shared_ptr<const ModelMemory> memory, bool phantom)
    : plan_(std::move(plan)),
      memory_(std::move(memory)),
      state_(OptimizerStatePerParameter(ToUpdateRule(plan_->model().update_rule()))) {
  for (const BucketPlan& bucket : plan_->plan().buckets()) {
    std::vector<KeptChunk>& chunks = buckets_.emplace_back();
    for (const Chunk& chunk : bucket.chunks()) {
      chunks.push_back({chunk.offset(), chunk.size(), std::nullopt, {}});
    }
  }
  if (phantom) return;
  const int64_t kept = 1 + state_;
  int64_t parameters = 0;
  for (const BucketPlan& bucket : plan_->plan().buckets()) {
    if (bucket.update_at_workers()) parameters += FloatCount(bucket);
  }
  try {
    floats_.resize(parameters * kept);
  } catch (const std::bad_alloc&) {
    throw Error(
        ExitCode::kFailure,
        "not enough memory to keep what the job goes back to after a loss (recovery.mode): " +
            std::to_string((parameters * kept * 4) >> 20) + " MiB");
  }
  std::span<float> rest(floats_);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!UpdatesItself(bucket)) continue;
    for (KeptChunk& chunk : buckets_[bucket]) {
      chunk.before = rest.first(chunk.size * kept);
      rest = rest.subspan(chunk.before.size());
    }
  }
}

bool KeptState::UpdatesItself(size_t bucket) const {
  return plan_->plan().buckets(static_cast<int>(bucket)).update_at_workers();
}

std::span<float> KeptState::Values(int bucket, const KeptChunk& chunk) const {
  return memory_->bucket(bucket).values.subspan(chunk.offset, chunk.size);
}

std::span<float> KeptState::OptimizerState(int bucket, const KeptChunk& chunk) const {
  return memory_->bucket(bucket).optimizer_state.subspan(chunk.offset * state_,
                                                         chunk.size * state_);
}

void KeptState::Arrived(int bucket, int chunk, int64_t iteration) {
  buckets_[bucket][chunk].version = iteration;
}

void KeptState::AllArrived(int64_t iteration) {
  for (std::vector<KeptChunk>& chunks : buckets_) {
    for (KeptChunk& chunk : chunks) chunk.version = iteration;
  }
}

void KeptState::BeforeUpdate(int bucket, int64_t offset, int64_t size, int64_t iteration) {
  for (KeptChunk& chunk : buckets_[bucket]) {
    if (chunk.offset < offset || chunk.offset >= offset + size) continue;
    CHECK(chunk.version == iteration) << "an update of values that are not for its iteration";
    chunk.version = iteration + 1;
    if (chunk.before.empty()) continue;
    std::ranges::copy(Values(bucket, chunk), chunk.before.begin());
    std::ranges::copy(OptimizerState(bucket, chunk), chunk.before.begin() + chunk.size);
  }
}

bool KeptState::complete() const {
  return std::ranges::all_of(buckets_, [](const std::vector<KeptChunk>& chunks) {
    return std::ranges::all_of(chunks,
                               [](const KeptChunk& chunk) { return chunk.version.has_value(); });
  });
}

std::optional<int64_t> KeptState::OldestVersion() const {
  std::optional<int64_t> oldest;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!UpdatesItself(bucket)) continue;
    for (const KeptChunk& chunk : buckets_[bucket]) {
      if (!chunk.version) return std::nullopt;
      oldest = std::min(oldest.value_or(*chunk.version), *chunk.version);
    }
  }
  return oldest;
}

void KeptState::GoBack(int64_t iteration) {
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!UpdatesItself(bucket)) continue;
    for (KeptChunk& chunk : buckets_[bucket]) {
      CHECK(chunk.version == iteration || chunk.version == iteration + 1)
          << "iteration " << iteration << " is not kept";
      if (chunk.version == iteration) continue;
      chunk.version = iteration;
      if (chunk.before.empty()) continue;
      const auto values = Values(static_cast<int>(bucket), chunk);
      const auto state = OptimizerState(static_cast<int>(bucket), chunk);
      std::copy_n(chunk.before.begin(), values.size(), values.begin());
      std::ranges::copy(chunk.before.subspan(values.size()), state.begin());
    }
  }
}

void KeptState::Forget() {
  for (std::vector<KeptChunk>& chunks : buckets_) {
    for (KeptChunk& chunk : chunks) chunk.version.reset();
  }
}

}  // namespace poseidon
