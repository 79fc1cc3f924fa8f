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
// That the predictions by which messages are spared may have together: a tenth of a search.
constexpr int64_t kMostSparingMessages = 30000;
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
  // `all_kinds`: of each kind a plan is kept, however slow it is predicted to be. `is_tried`: what
  // is found will be.
  Search(Predictor& predictor, const Communication& communication, bool all_kinds, bool is_tried)
      : all_kinds_(all_kinds),
        is_tried_(is_tried),
        predictor_(predictor),
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
    if (is_tried_) SpareMessages();
    DropNeedlessCodecs();
    if (!best_.fifo) {
      PlanCandidate fifo = best_;
      fifo.fifo = true;
      Try(fifo, kAnyMessages);
    }
  }

  // What was found: its time, whether it hides all exchanges, and itself.
  double seconds() const { return seconds_; }
  bool hidden() const { return least_ <= predictor_.ComputeSeconds() * kEnough; }
  Plan plan() const { return Build(best_); }
  // The best of each kind, and their times.
  const Rivals& rivals() const { return rivals_; }
  // Those of the other policies, if plans of all kinds are kept.
  const std::vector<Plan>& policies() const { return policies_; }

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
    if (MessagesPerIteration(plan, predictor_.cluster()) > most_messages) return false;
    if (!tried_.insert(plan.SerializeAsString()).second) return false;
    const double least = predictor_.LeastSeconds(plan);
    if (least >= seconds_ * worth) {
      if (all_kinds_) rivals_.try_emplace(KindOf(plan), least, plan);
      return false;
    }
    messages_ += MessagesPerIteration(plan, predictor_.cluster());
    const double seconds = predictor_.Predict(plan, seconds_ * kRival).seconds;
    Keep(plan, seconds);
    if (seconds >= seconds_ * worth) return false;
    seconds_ = seconds;
    least_ = seconds;
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
      if (all_kinds_) KeepPolicy(candidate, communication);
    }
  }

  // As it is, and with a bucket for each layer.
  void KeepPolicy(const PlanCandidate& candidate, Communication communication) {
    policies_.push_back(Build(candidate));
    if (communication.bucket_bytes() == 0) return;
    communication.set_bucket_bytes(0);
    PlanCandidate split = candidate;
    split.buckets = ChooseBuckets(book_, communication);
    policies_.push_back(Build(split));
  }

  double Estimate(const PlanCandidate& candidate) const {
    return predictor_.Estimate(Build(candidate)).seconds;
  }

  // Tries each family with the sizes that are best by estimate, the best family first.
  void TryFamilies() {
    std::vector<Estimated> finalists;
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
            if (is_tried_) families_.push_back({estimate, candidate});
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

  // Of the plans that take hardly longer the one with the fewest messages. Of many that are
  // predicted to be alike, some are better than it seems and others worse, so this is for those
  // that are tried.
  void SpareMessages() {
    std::vector<std::pair<int64_t, PlanCandidate>> sparing;
    const auto add = [&](const PlanCandidate& candidate) {
      sparing.push_back({MessagesOfAll(Build(candidate)), candidate});
    };
    for (const auto& [estimate, candidate] : families_) {
      if (estimate < seconds_ * kRival && !AddsCodec(candidate)) add(candidate);
    }
    for (const PlanCandidate& neighbour : candidates_.Neighbours(best_)) add(neighbour);
    std::stable_sort(sparing.begin(), sparing.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const int64_t most = MessagesOfAll(Build(best_));
    const double worth = seconds_ * kWorthMessages;
    int64_t predicted = 0;
    for (const auto& [messages, candidate] : sparing) {
      if (messages >= most) return;
      const Plan plan = Build(candidate);
      if (predictor_.LeastSeconds(plan) > worth) continue;
      predicted += MessagesPerIteration(plan, predictor_.cluster());
      if (predicted > kMostSparingMessages) return;
      const double seconds = predictor_.Predict(plan, worth).seconds;
      if (seconds > worth) continue;
      Keep(plan, seconds);
      seconds_ = seconds;
      best_ = candidate;
      return;
    }
  }

  // Whether it has a codec and the best has none.
  bool AddsCodec(const PlanCandidate& candidate) const {
    const auto coded = [](const PlanCandidate& plan) {
      return std::any_of(plan.buckets.begin(), plan.buckets.end(),
                         [](const BucketChoice& bucket) { return bucket.codec != FP32; });
    };
    return coded(candidate) && !coded(best_);
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

  using Estimated = std::pair<double, PlanCandidate>;

  bool all_kinds_;
  bool is_tried_;
  Predictor& predictor_;
  const InformationBook& book_;
  const Communication& communication_;
  PlanCandidates candidates_;
  std::vector<Grid> grids_;          // that tori may have
  std::vector<Estimated> families_;  // in all sizes, with their estimates
  std::set<std::string> tried_;
  int64_t messages_ = 0;
  Rivals rivals_;
  std::vector<Plan> policies_;
  PlanCandidate best_;
  double seconds_ = std::numeric_limits<double>::infinity();  // of the best
  double least_ = seconds_;                                   // before messages were spared
};

// What a search, or that by priority and that in order, has found.
struct Found {
  Plan best;
  double seconds = 0;  // as predicted
  Rivals rivals;
  std::vector<Plan> policies;
};

Found SearchBoth(Predictor& predictor, const Communication& communication, bool all_kinds,
                 bool is_tried) {
  Search search(predictor, communication, all_kinds, is_tried);
  search.Run();
  Found found{search.plan(), search.seconds(), search.rivals(), search.policies()};
  if (!communication.by_priority() || search.hidden()) return found;
  // What is best first come, first served need not be near what is best by priority.
  Communication in_order = communication;
  in_order.set_by_priority(false);
  Search other(predictor, in_order, all_kinds, is_tried);
  other.Run();
  found.rivals.insert(other.rivals().begin(), other.rivals().end());
  // Order by priority helps where a network is slower than was thought; not for nothing is it
  // given up.
  constexpr double kWorthPriority = 0.995;
  if (other.seconds() < found.seconds * kWorthPriority) {
    found.best = other.plan();
    found.seconds = other.seconds();
  }
  return found;
}

// Tries the best plan and, as long as others may be better, these.
class Trials {
 public:
  // No plan takes less than `least` seconds. `all_kinds` as of the searches.
  Trials(const PlanTrial& trial, double least, bool all_kinds)
      : trial_(trial), least_(least), all_kinds_(all_kinds) {}

  // What has been found for a cluster, the first one first. `is_bound`: no plan takes much less
  // than predicted for this one.
  void Add(const Found& found, bool is_bound) {
    const auto add = [&](double predicted, const Plan& plan) {
      rivals_.push_back({predicted / found.seconds, is_bound ? predicted : 0, &plan});
    };
    add(found.seconds, found.best);
    for (const Plan& plan : found.policies) add(found.seconds, plan);
    for (const auto& [kind, rival] : found.rivals) add(rival.first, rival.second);
    ++clusters_;
  }

  std::optional<Plan> Run() {
    // The first stays first among equals.
    std::stable_sort(rivals_.begin() + 1, rivals_.end(),
                     [](const Rival& a, const Rival& b) { return a.behind < b.behind; });
    const int most_trials = all_kinds_ ? kMostTrialsOfCluster * clusters_ : kMostTrials;
    std::set<std::string> tried;
    int64_t messages = 0;
    for (const Rival& rival : rivals_) {
      if (best_ <= least_ * kEnough || static_cast<int>(tried.size()) == most_trials ||
          messages > kMostTriedMessages * clusters_) {
        break;
      }
      if (rival.bound * kOptimism >= best_) continue;
      if (!tried.insert(rival.plan->SerializeAsString()).second) continue;
      const std::optional<double> seconds = trial_(*rival.plan);
      messages += MessagesOfAll(*rival.plan);
      // Too large to be tried, as are its likes: the prediction is all there is.
      if (!seconds && clusters_ == 1) break;
      if (!seconds) continue;
      // Workers that still catch up with the slowest one take less in some iterations, unless they
      // wait for nobody.
      const double steady = rival.plan->staleness() < 0 ? *seconds : std::max(*seconds, least_);
      // The searches' own, which have spared messages, come first.
      if (steady * kWorthMessages >= best_) continue;
      best_ = steady;
      winner_ = *rival.plan;
    }
    if (winner_) winner_->set_simulated_ms(kMillisecondsPerSecond * best_);
    return winner_;
  }

 private:
  struct Rival {
    double behind = 1;  // the best that is predicted for the same cluster
    double bound = 0;   // seconds
    const Plan* plan = nullptr;
  };

  // Mostly the first one agrees with the prediction, and is the only one.
  static constexpr int kMostTrials = 6;
  // Where predictions are for other networks, or machines differ: the best of each search, the
  // policies', and some more.
  static constexpr int kMostTrialsOfCluster = 20;
  // Of an iteration, in all trials but the last: some five seconds on one core.
  static constexpr int64_t kMostTriedMessages = 200000;
  // By how much predictions are too high, but for one in fifty.
  static constexpr double kOptimism = 0.97;

  const PlanTrial& trial_;
  double least_;
  bool all_kinds_;
  int clusters_ = 0;
  std::vector<Rival> rivals_;
  double best_ = std::numeric_limits<double>::infinity();
  std::optional<Plan> winner_;
};

// With local steps nothing hides behind a backward pass, and what layers exchange adds up: so it is
// one scheme for all, of those that have no factors, and in each fragment one layer after the
// other.
Plan PlanLocalSteps(Predictor& predictor, Communication communication) {
  Plan best;
  double least = std::numeric_limits<double>::infinity();
  for (const Communication::Policy policy :
       {Communication::ALL_PS, Communication::ALL_RING, Communication::ALL_HALVING_DOUBLING,
        Communication::ALL_TORUS}) {
    communication.set_policy(policy);
    Plan plan = MakePlan(predictor.book(), communication);
    if (plan.grid_size() > 0) {
      SetGrid(BestGrid(predictor, plan, GridsFor(predictor.book(), communication)), plan);
    }
    const double seconds = predictor.Predict(plan).seconds;
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(plan);
  }
  predictor.Annotate(best);
  return best;
}

}  // namespace

Plan PlanByTime(Predictor& predictor, const Communication& communication, const PlanTrial& trial,
                std::span<Predictor> farther) {
  if (communication.local_steps() > 1) {
    return PlanLocalSteps(farther.empty() ? predictor : farther.back(), communication);
  }
  // Where networks are not what is predicted, or machines differ, of which some come to be ahead.
  const bool all_kinds = !farther.empty() || !predictor.cluster().deviations.empty();
  const bool is_tried = static_cast<bool>(trial);
  std::vector<Found> found = {SearchBoth(predictor, communication, all_kinds, is_tried)};
  for (Predictor& other : farther) {
    found.push_back(SearchBoth(other, communication, all_kinds, is_tried));
  }
  Plan plan = found.back().best;
  if (trial) {
    Trials trials(trial, predictor.ComputeSeconds(), all_kinds);
    for (size_t i = 0; i < found.size(); ++i) trials.Add(found[i], i == 0);
    plan = trials.Run().value_or(std::move(plan));
  }
  NearestToTrial(predictor, farther, plan).Annotate(plan);
  return plan;
}

}  // namespace poseidon
