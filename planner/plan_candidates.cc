#include "planner/plan_candidates.h"

#include <algorithm>

#include "planner/cost/cost_model.h"
#include "proto/bucket.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// Of which each cut into buckets is tried: where there are more layers, other sizes come to much
// the same, and a search has no time for all.
constexpr size_t kFewLayers = 16;

// Every layer on its own.
PlanCandidate Split(const PlanCandidate& candidate) {
  PlanCandidate split = candidate;
  split.buckets.clear();
  for (const BucketChoice& bucket : candidate.buckets) {
    for (int i = 0; i < bucket.layer_count; ++i) {
      split.buckets.push_back(bucket);
      split.buckets.back().first_layer += i;
      split.buckets.back().layer_count = 1;
    }
  }
  return split;
}

void SetScheme(Scheme scheme, BucketChoice& bucket) {
  bucket.scheme = scheme;
  bucket.codec = UsableCodec(scheme, bucket.codec);
  bucket.factor_ring = false;
}

}  // namespace

PlanCandidates::PlanCandidates(const InformationBook& book, WireCodec codec)
    : book_(book), codec_(codec) {
  for (int i = 0; i < book.Query(Property::kLayers); ++i) facts_.push_back(book.Query(i));
}

std::vector<PlanFamily> PlanCandidates::Families() const {
  std::vector<PlanFamily> families;
  std::vector<WireCodec> codecs = {FP32};
  if (codec_ != FP32) codecs.push_back(codec_);
  const bool factors = std::any_of(facts_.begin(), facts_.end(),
                                   [](const LayerFacts& layer) { return layer.factorable; });
  for (const WireCodec codec : codecs) {
    for (const FactorUse use :
         {FactorUse::kNone, FactorUse::kBroadcast, FactorUse::kRing, FactorUse::kPaper}) {
      if (use != FactorUse::kNone && !factors) continue;
      for (const Scheme dense : {PS, RING, HALVING_DOUBLING, TORUS}) {
        families.push_back({dense, use, codec});
      }
    }
  }
  return families;
}

Scheme PlanCandidates::SchemeOf(const PlanFamily& family, int layer) const {
  if (!facts_[layer].factorable || family.factors == FactorUse::kNone) return family.dense;
  if (family.factors == FactorUse::kPaper && BestScheme(book_, layer) != SFB) return family.dense;
  return SFB;
}

PlanCandidate PlanCandidates::Make(const PlanFamily& family, int64_t chunk_bytes,
                                   int64_t merge_bytes) const {
  PlanCandidate candidate;
  for (int layer = 0; layer < static_cast<int>(facts_.size()); ++layer) {
    BucketChoice bucket;
    bucket.first_layer = layer;
    bucket.scheme = SchemeOf(family, layer);
    bucket.codec = CodecOf(facts_[layer], bucket.scheme, family.codec);
    bucket.chunk_floats = std::max<int64_t>(chunk_bytes / kFloatBytes, 1);
    bucket.factor_ring = family.factors == FactorUse::kRing;
    candidate.buckets.push_back(bucket);
  }
  return Merged(candidate, merge_bytes);
}

int64_t PlanCandidates::Bytes(const BucketChoice& bucket) const {
  int64_t floats = 0;
  for (int i = 0; i < bucket.layer_count; ++i) {
    floats += facts_[bucket.first_layer + i].parameters;
  }
  return floats * kFloatBytes;
}

bool PlanCandidates::CanMerge(const BucketChoice& a, const BucketChoice& b) {
  return a.scheme == b.scheme && a.codec == b.codec && !UsesFactors(a.scheme);
}

PlanCandidate PlanCandidates::Merged(const PlanCandidate& candidate, int64_t bytes) const {
  PlanCandidate merged = candidate;
  merged.buckets.clear();
  for (const BucketChoice& bucket : candidate.buckets) {
    const bool join = !merged.buckets.empty() && CanMerge(merged.buckets.back(), bucket) &&
                      Bytes(merged.buckets.back()) < bytes;
    if (join) {
      merged.buckets.back().layer_count += bucket.layer_count;
    } else {
      merged.buckets.push_back(bucket);
    }
  }
  return merged;
}

std::vector<PlanCandidate> PlanCandidates::Neighbors(const PlanCandidate& candidate) const {
  std::vector<PlanCandidate> neighbors;
  for (const int64_t factor : {2, 4}) {
    neighbors.push_back(candidate);
    for (BucketChoice& bucket : neighbors.back().buckets) bucket.chunk_floats *= factor;
    neighbors.push_back(candidate);
    for (BucketChoice& bucket : neighbors.back().buckets) {
      bucket.chunk_floats =
          std::max<int64_t>(bucket.chunk_floats / factor, kChunkBytes[0] / kFloatBytes);
    }
  }
  for (const int64_t bytes : kMergeBytes) neighbors.push_back(Merged(Split(candidate), bytes));
  AddSchemesOfSmall(candidate, neighbors);
  AddSchemesOfLargest(candidate, neighbors);
  if (facts_.size() <= kFewLayers) AddCuts(candidate, neighbors);
  return neighbors;
}

void PlanCandidates::AddSchemesOfSmall(const PlanCandidate& candidate,
                                       std::vector<PlanCandidate>& neighbors) const {
  for (const int64_t most : {int64_t{65536}, int64_t{1048576}}) {
    for (const Scheme scheme : {PS, RING, HALVING_DOUBLING, TORUS}) {
      neighbors.push_back(candidate);
      for (BucketChoice& bucket : neighbors.back().buckets) {
        if (Bytes(bucket) <= most) SetScheme(scheme, bucket);
      }
    }
  }
}

void PlanCandidates::AddSchemesOfLargest(const PlanCandidate& candidate,
                                         std::vector<PlanCandidate>& neighbors) const {
  constexpr size_t kLargest = 4;
  for (const size_t b : LargestFirst(candidate, kLargest)) {
    const BucketChoice& bucket = candidate.buckets[b];
    const bool factors = bucket.layer_count == 1 && facts_[bucket.first_layer].factorable;
    for (const Scheme scheme : {PS, RING, HALVING_DOUBLING, TORUS, SFB, ADAM}) {
      if (UsesFactors(scheme) && !factors) continue;
      neighbors.push_back(candidate);
      SetScheme(scheme, neighbors.back().buckets[b]);
    }
    if (!factors) continue;
    neighbors.push_back(candidate);
    SetScheme(SFB, neighbors.back().buckets[b]);
    neighbors.back().buckets[b].factor_ring = true;
  }
}

std::vector<PlanCandidate> PlanCandidates::Combinations(const PlanCandidate& candidate) const {
  constexpr size_t kMost = 3;
  const Scheme dense = DenseScheme(candidate);
  std::vector<PlanCandidate> combinations = {Split(candidate)};
  size_t combined = 0;
  for (const size_t b : LargestFirst(combinations[0], combinations[0].buckets.size())) {
    if (!facts_[combinations[0].buckets[b].first_layer].factorable) continue;
    std::vector<PlanCandidate> longer;
    for (const PlanCandidate& before : combinations) {
      for (const Scheme scheme : {SFB, PS, dense}) {
        longer.push_back(before);
        SetScheme(scheme, longer.back().buckets[b]);
      }
      longer.push_back(before);
      SetScheme(SFB, longer.back().buckets[b]);
      longer.back().buckets[b].factor_ring = true;
    }
    combinations = std::move(longer);
    if (++combined == kMost) break;
  }
  // Buckets of several layers as they were.
  for (PlanCandidate& combination : combinations) {
    combination = MergedAs(candidate, combination);
  }
  return combinations;
}

Scheme PlanCandidates::DenseScheme(const PlanCandidate& candidate) {
  for (const BucketChoice& bucket : candidate.buckets) {
    if (!UsesFactors(bucket.scheme)) return bucket.scheme;
  }
  return PS;
}

PlanCandidate PlanCandidates::MergedAs(const PlanCandidate& merged, const PlanCandidate& split) {
  PlanCandidate result = split;
  result.buckets.clear();
  size_t part = 0;
  for (const BucketChoice& bucket : merged.buckets) {
    for (int i = 0; i < bucket.layer_count; ++i) {
      const BucketChoice& layer = split.buckets[part++];
      if (i > 0 && CanMerge(result.buckets.back(), layer)) {
        ++result.buckets.back().layer_count;
      } else {
        result.buckets.push_back(layer);
      }
    }
  }
  return result;
}

void PlanCandidates::AddCuts(const PlanCandidate& candidate,
                             std::vector<PlanCandidate>& neighbors) const {
  for (size_t b = 0; b < candidate.buckets.size(); ++b) {
    const BucketChoice& bucket = candidate.buckets[b];
    const auto at = static_cast<std::ptrdiff_t>(b);
    for (int layers = 1; layers < bucket.layer_count; ++layers) {
      std::vector<BucketChoice>& cut = neighbors.emplace_back(candidate).buckets;
      cut.insert(cut.begin() + at, bucket);
      cut[b].layer_count = layers;
      cut[b + 1].first_layer += layers;
      cut[b + 1].layer_count -= layers;
    }
    if (b == 0 || !CanMerge(candidate.buckets[b - 1], bucket)) continue;
    std::vector<BucketChoice>& joined = neighbors.emplace_back(candidate).buckets;
    joined[b - 1].layer_count += bucket.layer_count;
    joined.erase(joined.begin() + at);
  }
}

std::vector<size_t> PlanCandidates::LargestFirst(const PlanCandidate& candidate,
                                                 size_t most) const {
  std::vector<size_t> order(candidate.buckets.size());
  for (size_t b = 0; b < order.size(); ++b) order[b] = b;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return Bytes(candidate.buckets[a]) > Bytes(candidate.buckets[b]);
  });
  order.resize(std::min(order.size(), most));
  return order;
}

}  // namespace poseidon
