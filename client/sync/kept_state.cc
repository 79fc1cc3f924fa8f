#include "client/sync/kept_state.h"

#include <glog/logging.h>

#include <algorithm>
#include <new>

#include "core/error.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

void CopyPart(std::span<const float> from, int64_t offset, int64_t size, std::span<float> to) {
  if (from.empty() || to.empty()) return;
  std::ranges::copy(from.subspan(offset, size), to.begin() + offset);
}

}  // namespace

KeptState::KeptState(std::shared_ptr<const wire::PlanAndModel> plan,
                     std::shared_ptr<const ModelMemory> memory, bool phantom)
    : plan_(std::move(plan)),
      memory_(std::move(memory)),
      updated_(plan_->model().update_rule().deferred() ? plan_->model().layers_size() : 0) {
  const int64_t start = plan_->plan().start_iteration();
  SetUpdated(start);
  for (const BucketPlan& bucket : plan_->plan().buckets()) {
    KeptBucket& kept = buckets_.emplace_back();
    kept.updates_itself = bucket.update_at_workers();
    for (const Chunk& chunk : bucket.chunks()) {
      kept.chunks.push_back(
          {.offset = chunk.offset(), .size = chunk.size(), .version = {}, .sent = start});
    }
  }
  if (!phantom) Allocate();
}

void KeptState::Allocate() {
  const auto feeds_back = [this](size_t bucket) {
    return NeedsErrorFeedback(plan_->plan().buckets(static_cast<int>(bucket)).codec());
  };
  const auto floats_of = [this](size_t bucket) {
    return FloatCount(plan_->plan().buckets(static_cast<int>(bucket)));
  };
  int64_t floats = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) floats += feeds_back(b) ? 2 * floats_of(b) : 0;
  try {
    floats_.resize(floats);
  } catch (const std::bad_alloc&) {
    throw Error(ExitCode::kFailure,
                "not enough memory to keep what the codec has not sent, for the job may go back "
                "after a loss (recovery.mode): " +
                    std::to_string((floats * 4) >> 20) + " MiB");
  }
  std::span<float> rest(floats_);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (!feeds_back(b)) continue;
    for (std::span<float>& before : buckets_[b].unsent) {
      before = rest.first(floats_of(b));
      rest = rest.subspan(before.size());
    }
  }
}

void KeptState::SetUpdated(int64_t iteration) {
  for (std::atomic<int64_t>& updated : updated_) updated = iteration;
}

void KeptState::Updated(int layer, int64_t iteration) { updated_[layer] = iteration; }

void KeptState::Arrived(int bucket, int chunk, int64_t iteration) {
  buckets_[bucket].chunks[chunk].version = iteration;
}

void KeptState::AllArrived(int64_t iteration) {
  SetUpdated(iteration);
  for (KeptBucket& bucket : buckets_) {
    for (KeptChunk& chunk : bucket.chunks) chunk.version = chunk.sent = iteration;
  }
}

void KeptState::BeginUpdate(int bucket, int64_t offset, int64_t size, int64_t iteration) {
  for (KeptChunk& chunk : buckets_[bucket].chunks) {
    if (chunk.offset < offset || chunk.offset >= offset + size) continue;
    CHECK(chunk.version == iteration) << "an update of values that are not for its iteration";
    chunk.version = iteration + 1;
  }
}

void KeptState::BeforeSend(int bucket, int chunk, int64_t iteration) {
  if (buckets_[bucket].unsent[0].empty()) return;
  KeptChunk& kept = buckets_[bucket].chunks[chunk];
  CHECK_EQ(kept.sent, iteration);
  kept.sent = iteration + 1;
  CopyPart(memory_->bucket(bucket).residual, kept.offset, kept.size,
           buckets_[bucket].unsent[iteration % 2]);
}

bool KeptState::complete() const {
  return !awaits_statistics_ && std::ranges::all_of(buckets_, [](const KeptBucket& bucket) {
    return std::ranges::all_of(bucket.chunks,
                               [](const KeptChunk& chunk) { return chunk.version.has_value(); });
  });
}

std::optional<int64_t> KeptState::OldestVersion() const {
  std::optional<int64_t> oldest;
  for (const KeptBucket& bucket : buckets_) {
    if (!bucket.updates_itself) continue;
    for (const KeptChunk& chunk : bucket.chunks) {
      if (!chunk.version) return std::nullopt;
      oldest = std::min(oldest.value_or(*chunk.version), *chunk.version);
    }
  }
  // No server makes a deferred update: all layers are updated here.
  for (const std::atomic<int64_t>& updated : updated_) {
    oldest = std::min<int64_t>(oldest.value_or(updated), updated);
  }
  return oldest;
}

void KeptState::GoBack(int64_t iteration) {
  SetUpdated(iteration);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].updates_itself) continue;
    for (KeptChunk& chunk : buckets_[b].chunks) {
      GoBack(buckets_[b], memory_->bucket(static_cast<int>(b)), iteration, chunk);
    }
  }
}

void KeptState::GoBack(const KeptBucket& bucket, const BucketMemory& memory, int64_t iteration,
                       KeptChunk& chunk) {
  CHECK(chunk.version == iteration || chunk.version == iteration + 1)
      << "iteration " << iteration << " is not kept";
  if (chunk.version > iteration) {
    // The optimizer state of the iteration is still in its place.
    CopyPart(memory.before[iteration % 2], chunk.offset, chunk.size, memory.values);
  }
  chunk.version = iteration;
  CHECK_LE(chunk.sent, iteration + 2) << "what was not sent then is not kept";
  if (chunk.sent > iteration) {
    CopyPart(bucket.unsent[iteration % 2], chunk.offset, chunk.size, memory.residual);
    chunk.sent = iteration;
  }
}

void KeptState::Forget(int64_t iteration) {
  SetUpdated(iteration);
  for (KeptBucket& bucket : buckets_) {
    for (KeptChunk& chunk : bucket.chunks) {
      chunk.version.reset();
      chunk.sent = iteration;
    }
  }
}

}  // namespace poseidon
