#include "planner/time_planner.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "planner/cost/cost_model.h"
#include "planner/cost/exchange_tables.h"
#include "planner/planner.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
// Messages that all predictions of one search, after those of the other policies, may have
// together: about half a second on one core.
constexpr int64_t kMostSearchMessages = 300000;
// A plan of more messages is not tried: one prediction would take most of the search. The policies
// are, however many they have.
constexpr int64_t kMostCandidateMessages = 100000;
constexpr int64_t kAnyMessages = std::numeric_limits<int64_t>::max();
// Chunks to try besides the configured ones: from where a message's header is a thousandth to where
// a chunk stops being urgent traffic's obstacle on fast links. Smaller ones are predicted to pay,
// where a lane has a core of its own, by little; where nodes share cores they cost a lot.
constexpr int64_t kChunkBytes[] = {65536, 262144, 1048576, 4194304};
// Buckets to try: a layer each, and merged up to so much.
constexpr int64_t kMergeBytes[] = {0, 65536, 524288, 4194304, 33554432};

struct Candidate {
  std::vector<BucketChoice> buckets;
  Scheme grid_algorithm = RING;
  bool fifo = false;
};

// How layers with factors are synchronised; others are under `dense`.
enum class FactorUse { kNone, kBroadcast, kRing, kPaper };

struct Family {
  Scheme dense = PS;
  FactorUse factors = FactorUse::kNone;
  Scheme grid_algorithm = RING;
  WireCodec codec = FP32;
};

class Search {
 public:
  Search(Predictor& predictor, const Communication& communication)
      : predictor_(predictor), book_(predictor.book()), communication_(communication) {
    for (int i = 0; i < book_.Query(Property::kLayers); ++i) facts_.push_back(book_.Query(i));
  }

  void Run() {
    TryPolicies();
    messages_ = 0;
    TryFamilies();
    Improve();
    DropNeedlessCodecs();
    if (!best_.fifo) {
      Candidate fifo = best_;
      fifo.fifo = true;
      Try(fifo, kAnyMessages);
    }
  }

  // These are of what was found.
  double seconds() const { return seconds_; }
  bool hidden() const { return seconds_ <= predictor_.ComputeSeconds() * kEnough; }
  Plan plan() const {
    Plan plan = Build(best_);
    predictor_.Annotate(plan);
    return plan;
  }

 private:
  Plan Build(const Candidate& candidate) const {
    Plan plan = MakePlan(book_, communication_, candidate.buckets);
    if (candidate.fifo) plan.set_fifo(true);
    for (GridDimension& dimension : *plan.mutable_grid()) {
      dimension.set_algorithm(candidate.grid_algorithm);
    }
    return plan;
  }

  // Predicts the candidate, unless it can't be better than the best or costs too much; true if it
  // is the best now, which takes less than `worth` of the iteration before.
  bool Try(const Candidate& candidate, int64_t most_messages = kMostCandidateMessages,
           double worth = 1) {
    const Plan plan = Build(candidate);
    if (MessagesPerIteration(plan) > most_messages) return false;
    if (!tried_.insert(plan.SerializeAsString()).second) return false;
    if (predictor_.LeastSeconds(plan) >= seconds_ * worth) return false;
    messages_ += MessagesPerIteration(plan);
    const double seconds = predictor_.Predict(plan, seconds_).seconds;
    if (seconds >= seconds_ * worth) return false;
    seconds_ = seconds;
    best_ = candidate;
    return true;
  }

  bool MayGoOn() const { return messages_ < kMostSearchMessages && !hidden(); }

  // Whatever they cost: to be at least as good is promised.
  void TryPolicies() {
    for (const Communication::Policy policy :
         {Communication::BYTES, Communication::ALL_PS, Communication::ALL_SFB,
          Communication::ALL_RING, Communication::ALL_HALVING_DOUBLING, Communication::ALL_TORUS,
          Communication::ALL_ADAM}) {
      Communication communication = communication_;
      communication.set_policy(policy);
      Candidate candidate{ChooseBuckets(book_, communication), RING, !communication.by_priority()};
      const std::vector<BucketChoice> coded = candidate.buckets;
      for (BucketChoice& bucket : candidate.buckets) bucket.codec = FP32;
      Try(candidate, kAnyMessages);
      candidate.buckets = coded;
      Try(candidate, kAnyMessages);
    }
  }

  std::vector<Family> Families() const {
    std::vector<Family> families;
    std::vector<WireCodec> codecs = {FP32};
    if (communication_.codec() != FP32) codecs.push_back(communication_.codec());
    const bool factors = std::any_of(facts_.begin(), facts_.end(),
                                     [](const LayerFacts& layer) { return layer.factorable; });
    for (const WireCodec codec : codecs) {
      for (const FactorUse use :
           {FactorUse::kNone, FactorUse::kBroadcast, FactorUse::kRing, FactorUse::kPaper}) {
        if (use != FactorUse::kNone && !factors) continue;
        for (const Scheme dense : {PS, RING, HALVING_DOUBLING, TORUS}) {
          families.push_back({dense, use, RING, codec});
        }
        families.push_back({TORUS, use, HALVING_DOUBLING, codec});
      }
    }
    return families;
  }

  Scheme SchemeOf(const Family& family, int layer) const {
    if (!facts_[layer].factorable || family.factors == FactorUse::kNone) return family.dense;
    if (family.factors == FactorUse::kPaper && BestScheme(book_, layer) != SFB) return family.dense;
    return SFB;
  }

  Candidate Make(const Family& family, int64_t chunk_bytes, int64_t merge_bytes) const {
    Candidate candidate;
    candidate.grid_algorithm = family.grid_algorithm;
    for (int layer = 0; layer < static_cast<int>(facts_.size()); ++layer) {
      BucketChoice bucket;
      bucket.first_layer = layer;
      bucket.scheme = SchemeOf(family, layer);
      bucket.codec = UsableCodec(bucket.scheme, family.codec);
      bucket.chunk_floats = std::max<int64_t>(chunk_bytes / kFloatBytes, 1);
      bucket.factor_ring = family.factors == FactorUse::kRing;
      candidate.buckets.push_back(bucket);
    }
    return Merged(candidate, merge_bytes);
  }

  int64_t Bytes(const BucketChoice& bucket) const {
    int64_t floats = 0;
    for (int i = 0; i < bucket.layer_count; ++i) {
      floats += facts_[bucket.first_layer + i].parameters;
    }
    return floats * kFloatBytes;
  }

  static bool CanMerge(const BucketChoice& a, const BucketChoice& b) {
    return a.scheme == b.scheme && a.codec == b.codec && !UsesFactors(a.scheme);
  }

  // Neighbours of one kind together, as long as the lower ones have fewer bytes than `bytes`.
  Candidate Merged(const Candidate& candidate, int64_t bytes) const {
    Candidate merged = candidate;
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

  double Estimate(const Candidate& candidate) const {
    return predictor_.Estimate(Build(candidate)).seconds;
  }

  // Of each family the sizes that are best by estimate, and of these the best first.
  void TryFamilies() {
    std::vector<std::pair<double, Candidate>> finalists;
    std::vector<int64_t> chunk_bytes(std::begin(kChunkBytes), std::end(kChunkBytes));
    chunk_bytes.push_back(communication_.kv_pair_bytes());
    for (const Family& family : Families()) {
      double least = std::numeric_limits<double>::infinity();
      Candidate best;
      for (const int64_t merge : kMergeBytes) {
        for (const int64_t chunk : chunk_bytes) {
          const Candidate candidate = Make(family, chunk, merge);
          const double estimate = Estimate(candidate);
          if (estimate >= least) continue;
          least = estimate;
          best = candidate;
        }
      }
      finalists.push_back({least, std::move(best)});
    }
    std::stable_sort(finalists.begin(), finalists.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [estimate, candidate] : finalists) {
      if (!MayGoOn()) return;
      Try(candidate);
    }
  }

  // One change after another that is predicted to help.
  void Improve() {
    bool improved = true;
    while (improved && MayGoOn()) {
      improved = false;
      for (const Candidate& neighbour : Neighbours(best_)) {
        if (!MayGoOn()) return;
        improved = Try(neighbour, kMostCandidateMessages, kWorthwhile) || improved;
      }
    }
  }

  std::vector<Candidate> Neighbours(const Candidate& candidate) const {
    std::vector<Candidate> neighbours;
    for (const int64_t factor : {2, 4}) {
      neighbours.push_back(candidate);
      for (BucketChoice& bucket : neighbours.back().buckets) bucket.chunk_floats *= factor;
      neighbours.push_back(candidate);
      for (BucketChoice& bucket : neighbours.back().buckets) {
        bucket.chunk_floats =
            std::max<int64_t>(bucket.chunk_floats / factor, kChunkBytes[0] / kFloatBytes);
      }
    }
    for (const int64_t bytes : kMergeBytes) neighbours.push_back(Merged(Split(candidate), bytes));
    AddSchemeChanges(candidate, neighbours);
    AddMerges(candidate, neighbours);
    return neighbours;
  }

  // Every layer on its own.
  Candidate Split(const Candidate& candidate) const {
    Candidate split = candidate;
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

  void AddSchemeChanges(const Candidate& candidate, std::vector<Candidate>& neighbours) const {
    // Small buckets together: what suits them is another scheme than what suits the large ones.
    for (const int64_t most : {int64_t{65536}, int64_t{1048576}}) {
      for (const Scheme scheme : {PS, RING, HALVING_DOUBLING, TORUS}) {
        neighbours.push_back(candidate);
        for (BucketChoice& bucket : neighbours.back().buckets) {
          if (Bytes(bucket) <= most) SetScheme(scheme, bucket);
        }
      }
    }
    // And each of the largest, which matter most.
    constexpr size_t kLargest = 4;
    for (const size_t b : LargestFirst(candidate, kLargest)) {
      const BucketChoice& bucket = candidate.buckets[b];
      const bool factors = bucket.layer_count == 1 && facts_[bucket.first_layer].factorable;
      for (const Scheme scheme : {PS, RING, HALVING_DOUBLING, TORUS, SFB, ADAM}) {
        if (UsesFactors(scheme) && !factors) continue;
        neighbours.push_back(candidate);
        SetScheme(scheme, neighbours.back().buckets[b]);
      }
      if (!factors) continue;
      neighbours.push_back(candidate);
      SetScheme(SFB, neighbours.back().buckets[b]);
      neighbours.back().buckets[b].factor_ring = true;
    }
  }

  static void SetScheme(Scheme scheme, BucketChoice& bucket) {
    bucket.scheme = scheme;
    bucket.codec = UsableCodec(scheme, bucket.codec);
    bucket.factor_ring = false;
  }

  std::vector<size_t> LargestFirst(const Candidate& candidate, size_t most) const {
    std::vector<size_t> order(candidate.buckets.size());
    for (size_t b = 0; b < order.size(); ++b) order[b] = b;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return Bytes(candidate.buckets[a]) > Bytes(candidate.buckets[b]);
    });
    order.resize(std::min(order.size(), most));
    return order;
  }

  // The pair of neighbours whose merger is best by estimate; and all such pairs one after another.
  void AddMerges(const Candidate& candidate, std::vector<Candidate>& neighbours) const {
    Candidate greedy = candidate;
    double least = Estimate(candidate);
    for (size_t b = greedy.buckets.size(); b-- > 1;) {
      if (!CanMerge(greedy.buckets[b - 1], greedy.buckets[b])) continue;
      Candidate merged = greedy;
      merged.buckets[b - 1].layer_count += merged.buckets[b].layer_count;
      merged.buckets.erase(merged.buckets.begin() + static_cast<std::ptrdiff_t>(b));
      const double estimate = Estimate(merged);
      if (estimate > least) continue;
      least = estimate;
      greedy = std::move(merged);
    }
    neighbours.push_back(std::move(greedy));
  }

  // A codec costs precision, so it stays only where time depends on it.
  void DropNeedlessCodecs() {
    Candidate plain = best_;
    double least = Estimate(plain);
    for (BucketChoice& bucket : plain.buckets) {
      const WireCodec codec = bucket.codec;
      if (codec == FP32) continue;
      bucket.codec = FP32;
      if (Estimate(plain) > least * kWorthPrecision) bucket.codec = codec;
    }
    const double seconds = predictor_.Predict(Build(plain)).seconds;
    if (seconds > seconds_ * kWorthPrecision) return;
    seconds_ = seconds;
    best_ = std::move(plain);
  }

  // An iteration that gets longer by less is no reason to give up precision.
  static constexpr double kWorthPrecision = 1.001;

  // Refining a plan by less is not worth it: finer cuts cost what the model does not know, such as
  // cores that several nodes share.
  static constexpr double kWorthwhile = 0.999;

  // An exchange that costs less than this is as good as hidden.
  static constexpr double kEnough = 1.0005;

  Predictor& predictor_;
  const InformationBook& book_;
  const Communication& communication_;
  std::vector<LayerFacts> facts_;
  std::set<std::string> tried_;
  int64_t messages_ = 0;
  Candidate best_;
  double seconds_ = std::numeric_limits<double>::infinity();  // of the best
};

}  // namespace

Plan PlanByTime(Predictor& predictor, const Communication& communication) {
  Search search(predictor, communication);
  search.Run();
  if (!communication.by_priority() || search.hidden()) return search.plan();
  // What is best first come, first served need not be near what is best by priority.
  Communication in_order = communication;
  in_order.set_by_priority(false);
  Search other(predictor, in_order);
  other.Run();
  // Order by priority helps where a network is slower than was thought; not for nothing is it given
  // up.
  constexpr double kWorthPriority = 0.995;
  const bool better = other.seconds() < search.seconds() * kWorthPriority;
  return better ? other.plan() : search.plan();
}

}  // namespace poseidon
