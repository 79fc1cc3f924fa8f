#include "planner/time_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/time.h"
#include "planner/cost/exchange_tables.h"
#include "planner/grid_choice.h"
#include "planner/plan_candidates.h"
#include "planner/planner.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// Messages that all predictions of one search, after those of the other policies, may have
// together: about half a second on one core.
constexpr int64_t kMostSearchMessages = 300000;
// A plan of more messages is not tried: one prediction would take most of the search. The policies
// are, however many they have.
constexpr int64_t kMostCandidateMessages = 100000;
constexpr int64_t kAnyMessages = std::numeric_limits<int64_t>::max();

// Of chunks and buckets, where a family's grid is chosen before its sizes are.
constexpr int64_t kUsualBytes = 4 << 20;

// An exchange that costs less than this is as good as hidden.
constexpr double kEnough = 1.0005;

// Plans that use the same schemes in the same order of messages are of one kind.
std::string KindOf(const Plan& plan) {
  std::set<std::string> schemes;
  for (const BucketPlan& bucket : plan.buckets()) {
    schemes.insert(SchemeName(bucket.scheme()) + (bucket.factor_ring() ? " ring" : ""));
  }
  std::string kind = plan.fifo() ? "fifo" : "priority";
  for (const std::string& scheme : schemes) kind += ", " + scheme;
  return kind;
}

// By kind: seconds as predicted, and the plan.
using Rivals = std::map<std::string, std::pair<double, Plan>>;

class Search {
 public:
  Search(Predictor& predictor, const Communication& communication)
      : predictor_(predictor),
        book_(predictor.book()),
        communication_(communication),
        candidates_(predictor.book(), communication.codec()),
        grids_(GridsFor(predictor.book(), communication)) {}

  void Run() {
    TryPolicies();
    messages_ = 0;
    TryFamilies();
    TryCombinations();
    Improve();
    DropNeedlessCodecs();
    if (!best_.fifo) {
      PlanCandidate fifo = best_;
      fifo.fifo = true;
      Try(fifo, kAnyMessages);
    }
  }

  // What was found: its time, whether it hides all exchanges, and itself.
  double seconds() const { return seconds_; }
  bool hidden() const { return seconds_ <= predictor_.ComputeSeconds() * kEnough; }
  Plan plan() const { return Build(best_); }
  // The best of each kind, and their times.
  const Rivals& rivals() const { return rivals_; }

 private:
  Plan Build(const PlanCandidate& candidate) const {
    Plan plan = MakePlan(book_, communication_, candidate.buckets);
    if (candidate.fifo) plan.set_fifo(true);
    if (plan.grid_size() > 0) SetGrid(candidate.grid, plan);
    return plan;
  }

  // Predicts the candidate, unless it can't be better than the best or costs too much; true if it
  // is the best now, which takes less than `worth` of the iteration before.
  bool Try(const PlanCandidate& candidate, int64_t most_messages = kMostCandidateMessages,
           double worth = 1) {
    const Plan plan = Build(candidate);
    if (MessagesPerIteration(plan) > most_messages) return false;
    if (!tried_.insert(plan.SerializeAsString()).second) return false;
    if (predictor_.LeastSeconds(plan) >= seconds_ * worth) return false;
    messages_ += MessagesPerIteration(plan);
    const double seconds = predictor_.Predict(plan, seconds_ * kRival).seconds;
    Keep(plan, seconds);
    if (seconds >= seconds_ * worth) return false;
    seconds_ = seconds;
    best_ = candidate;
    return true;
  }

  // For a trial, which may see it otherwise.
  void Keep(const Plan& plan, double seconds) {
    const auto [rival, is_new] = rivals_.try_emplace(KindOf(plan), seconds, plan);
    if (!is_new && seconds < rival->second.first) rival->second = {seconds, plan};
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
      PlanCandidate candidate{
          ChooseBuckets(book_, communication), {}, !communication.by_priority()};
      const std::vector<BucketChoice> coded = candidate.buckets;
      for (BucketChoice& bucket : candidate.buckets) bucket.codec = FP32;
      if (policy == Communication::ALL_TORUS) {
        candidate.grid = BestGrid(predictor_, Build(candidate), grids_);
      }
      Try(candidate, kAnyMessages);
      candidate.buckets = coded;
      Try(candidate, kAnyMessages);
    }
  }

  double Estimate(const PlanCandidate& candidate) const {
    return predictor_.Estimate(Build(candidate)).seconds;
  }

  // Tries each family with the sizes that are best by estimate, the best family first.
  void TryFamilies() {
    std::vector<std::pair<double, PlanCandidate>> finalists;
    std::vector<int64_t> chunk_bytes(std::begin(kChunkBytes), std::end(kChunkBytes));
    chunk_bytes.push_back(communication_.kv_pair_bytes());
    for (const PlanFamily& family : candidates_.Families()) {
      for (const Grid& grid : GridsOf(candidates_.Make(family, kUsualBytes, kUsualBytes))) {
        double least = std::numeric_limits<double>::infinity();
        PlanCandidate best;
        for (const int64_t merge : kMergeBytes) {
          for (const int64_t chunk : chunk_bytes) {
            PlanCandidate candidate = candidates_.Make(family, chunk, merge);
            candidate.grid = grid;
            const double estimate = Estimate(candidate);
            if (estimate >= least) continue;
            least = estimate;
            best = candidate;
          }
        }
        finalists.push_back({least, std::move(best)});
      }
    }
    std::stable_sort(finalists.begin(), finalists.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [estimate, candidate] : finalists) {
      if (!MayGoOn()) return;
      Try(candidate);
    }
  }

  // Of a torus the grid that is best by estimate, which knows little of workers that wait for each
  // other in pairs; and the job's own, or as square as can be, with rings and with halving and
  // doubling along all dimensions. Else one that is empty.
  std::vector<Grid> GridsOf(const PlanCandidate& candidate) const {
    const Plan plan = Build(candidate);
    if (plan.grid_size() == 0) return {Grid()};
    Grid halving;
    for (const GridDimension& dimension : plan.grid()) {
      halving.push_back({dimension.size(), HALVING_DOUBLING});
    }
    return {BestByEstimate(predictor_, plan, grids_, 1).front(), Grid(), halving};
  }

  void TryCombinations() {
    for (const PlanCandidate& combination : candidates_.Combinations(best_)) {
      if (!MayGoOn()) return;
      Try(combination);
    }
  }

  // One change after another that is predicted to help.
  void Improve() {
    bool improved = true;
    while (improved && MayGoOn()) {
      improved = false;
      std::vector<PlanCandidate> neighbours = candidates_.Neighbours(best_);
      neighbours.push_back(Merged(best_));
      AddGrids(neighbours);
      for (const PlanCandidate& neighbour : neighbours) {
        if (!MayGoOn()) return;
        improved = Try(neighbour, kMostCandidateMessages, kWorthwhile) || improved;
      }
    }
  }

  void AddGrids(std::vector<PlanCandidate>& neighbours) const {
    constexpr size_t kMost = 3;
    const Plan plan = Build(best_);
    if (plan.grid_size() == 0) return;
    for (const Grid& grid : BestByEstimate(predictor_, plan, grids_, kMost)) {
      neighbours.push_back(best_);
      neighbours.back().grid = grid;
    }
  }

  // One pair of neighbours after another together, wherever that is no slower by estimate.
  PlanCandidate Merged(const PlanCandidate& candidate) const {
    PlanCandidate greedy = candidate;
    double least = Estimate(candidate);
    for (size_t b = greedy.buckets.size(); b-- > 1;) {
      if (!PlanCandidates::CanMerge(greedy.buckets[b - 1], greedy.buckets[b])) continue;
      PlanCandidate merged = greedy;
      merged.buckets[b - 1].layer_count += merged.buckets[b].layer_count;
      merged.buckets.erase(merged.buckets.begin() + static_cast<std::ptrdiff_t>(b));
      const double estimate = Estimate(merged);
      if (estimate > least) continue;
      least = estimate;
      greedy = std::move(merged);
    }
    return greedy;
  }

  // A codec costs precision, so it stays only where time depends on it.
  void DropNeedlessCodecs() {
    PlanCandidate plain = best_;
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

  // What is predicted to take longer than the best by more is no rival of it: predictions are
  // within a tenth.
  static constexpr double kRival = 1.1;

  // An iteration that gets longer by less is no reason to give up precision.
  static constexpr double kWorthPrecision = 1.001;

  // Refining a plan by less is not worth it: finer cuts cost what the model does not know, such as
  // cores that several nodes share.
  static constexpr double kWorthwhile = 0.999;

  Predictor& predictor_;
  const InformationBook& book_;
  const Communication& communication_;
  PlanCandidates candidates_;
  std::vector<Grid> grids_;  // that tori may have
  std::set<std::string> tried_;
  int64_t messages_ = 0;
  Rivals rivals_;
  PlanCandidate best_;
  double seconds_ = std::numeric_limits<double>::infinity();  // of the best
};

// Tries the best plan and, as long as others may be better, these.
class Trials {
 public:
  // No plan takes less than `least` seconds.
  Trials(const PlanTrial& trial, double least, Plan best, double seconds)
      : trial_(trial), least_(least) {
    rivals_.emplace_back(seconds, std::move(best));
  }

  void Add(const Rivals& rivals) {
    for (const auto& [kind, rival] : rivals) rivals_.push_back(rival);
  }

  Plan Run() {
    // The first stays first among equals.
    std::stable_sort(rivals_.begin() + 1, rivals_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    int tried = 0;
    int64_t messages = 0;
    for (const auto& [predicted, plan] : rivals_) {
      const bool done = best_ <= least_ * kEnough || predicted * kOptimism >= best_;
      if (tried == kMostTrials || messages > kMostTriedMessages || done) break;
      const std::optional<double> seconds = trial_(plan);
      ++tried;
      messages += MessagesOfAll(plan);
      // Too large to be tried, as are its likes: the prediction is all there is.
      if (!seconds) break;
      if (*seconds >= best_) continue;
      best_ = *seconds;
      winner_ = plan;
    }
    if (!winner_) return rivals_.front().second;
    winner_->set_simulated_ms(kMillisecondsPerSecond * best_);
    return *winner_;
  }

 private:
  // Mostly the first one agrees with the prediction, and is the only one.
  static constexpr int kMostTrials = 6;
  // Of an iteration, in all trials but the last: some five seconds on one core.
  static constexpr int64_t kMostTriedMessages = 200000;
  // By how much predictions are too high, but for one in fifty.
  static constexpr double kOptimism = 0.97;

  const PlanTrial& trial_;
  double least_;
  std::vector<std::pair<double, Plan>> rivals_;
  double best_ = std::numeric_limits<double>::infinity();
  std::optional<Plan> winner_;
};

}  // namespace

Plan PlanByTime(Predictor& predictor, const Communication& communication, const PlanTrial& trial) {
  Search search(predictor, communication);
  search.Run();
  Plan plan = search.plan();
  Rivals rivals = search.rivals();
  double seconds = search.seconds();
  if (communication.by_priority() && !search.hidden()) {
    // What is best first come, first served need not be near what is best by priority.
    Communication in_order = communication;
    in_order.set_by_priority(false);
    Search other(predictor, in_order);
    other.Run();
    rivals.insert(other.rivals().begin(), other.rivals().end());
    // Order by priority helps where a network is slower than was thought; not for nothing is it
    // given up.
    constexpr double kWorthPriority = 0.995;
    if (other.seconds() < seconds * kWorthPriority) {
      plan = other.plan();
      seconds = other.seconds();
    }
  }
  if (trial) {
    Trials trials(trial, predictor.ComputeSeconds(), std::move(plan), seconds);
    trials.Add(rivals);
    plan = trials.Run();
  }
  predictor.Annotate(plan);
  return plan;
}

}  // namespace poseidon
