// PlanCandidates: the plans that policy TIME looks at, as choices of buckets: families of plans
// with one scheme for all layers of a kind, and the neighbors of a plan, which differ from it by
// one change. What a plan costs is not known here.
//
// Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/information_book.h"
#include "planner/grid_choice.h"
#include "planner/planner.h"
#include "proto/model.pb.h"

namespace poseidon {

// Chunks to try besides the configured ones: from where a message's header is a thousandth to where
// a chunk stops being urgent traffic's obstacle on fast links. Smaller ones are predicted to pay,
// where a lane has a core of its own, by little; where nodes share cores they cost a lot.
inline constexpr int64_t kChunkBytes[] = {65536, 262144, 1048576, 4194304};
// Buckets to try: a layer each, and merged up to so much.
inline constexpr int64_t kMergeBytes[] = {0, 65536, 524288, 4194304, 33554432};

struct PlanCandidate {
  std::vector<BucketChoice> buckets;
  Grid grid;  // of tori
  bool fifo = false;
};

// How layers with factors are synchronized; others are under `dense`.
enum class FactorUse { kNone, kBroadcast, kRing, kPaper };

struct PlanFamily {
  Scheme dense = PS;
  FactorUse factors = FactorUse::kNone;
  WireCodec codec = FP32;
};

class PlanCandidates {
 public:
  // `book` outlives this. `codec` is the one that the job allows besides FP32.
  PlanCandidates(const InformationBook& book, WireCodec codec);

  std::vector<PlanFamily> Families() const;
  // The family's plan with such chunks, and buckets merged up to `merge_bytes`.
  PlanCandidate Make(const PlanFamily& family, int64_t chunk_bytes, int64_t merge_bytes) const;
  // Other chunks, other sizes of buckets, other schemes for some buckets; of few layers other
  // buckets, too.
  std::vector<PlanCandidate> Neighbors(const PlanCandidate& candidate) const;

  // The largest layers with factors, up to three, with every combination of schemes: which of them
  // should travel as factors depends on the others, for they share links and lanes.
  std::vector<PlanCandidate> Combinations(const PlanCandidate& candidate) const;

  static bool CanMerge(const BucketChoice& a, const BucketChoice& b);

 private:
  // Of the first bucket that does not travel as factors.
  static Scheme DenseScheme(const PlanCandidate& candidate);
  // The layers of `split` in the buckets of `merged`, where their schemes allow it.
  static PlanCandidate MergedAs(const PlanCandidate& merged, const PlanCandidate& split);
  Scheme SchemeOf(const PlanFamily& family, int layer) const;
  int64_t Bytes(const BucketChoice& bucket) const;
  // Neighbors of one kind together, as long as the lower ones have fewer bytes than `bytes`.
  PlanCandidate Merged(const PlanCandidate& candidate, int64_t bytes) const;
  // Small buckets together: what suits them is another scheme than what suits the large ones.
  void AddSchemesOfSmall(const PlanCandidate& candidate,
                         std::vector<PlanCandidate>& neighbors) const;
  // Each of the largest, which matter most.
  void AddSchemesOfLargest(const PlanCandidate& candidate,
                           std::vector<PlanCandidate>& neighbors) const;
  // A cut between two layers more, or less.
  void AddCuts(const PlanCandidate& candidate, std::vector<PlanCandidate>& neighbors) const;
  std::vector<size_t> LargestFirst(const PlanCandidate& candidate, size_t most) const;

  const InformationBook& book_;
  WireCodec codec_;
  std::vector<LayerFacts> facts_;
};

}  // namespace poseidon
