#include "planner/time_planner.h"

#include <algorithm>
#include <future>
#include <limits>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "core/time.h"
#include "planner/cost/exchange_tables.h"
#include "planner/grid_choice.h"
#include "planner/plan_search.h"
#include "planner/planner.h"

namespace poseidon {
namespace {

// What a search, or that by priority and that in order, has found.
struct Found {
  Plan best;
  double seconds = 0;  // as predicted
  bool hidden = false;
  Plan untried;  // the best where nothing can be tried
  double untried_seconds = 0;
  PlanSearch::Rivals rivals;
  std::vector<Plan> policies;
  SearchReport report;
};

Found Search(Predictor& predictor, const Communication& communication,
             const PlanSearch::Options& options) {
  PlanSearch search(predictor, communication, options);
  search.Run();
  return {search.plan(),     search.seconds(),         search.hidden(),
          search.untried(),  search.untried_seconds(), search.rivals(),
          search.policies(), search.report()};
}

Found SearchBoth(Predictor& predictor, const Communication& communication,
                 const PlanSearch::Options& options) {
  if (!communication.by_priority()) return Search(predictor, communication, options);
  // What is best first come, first served need not be near what is best by priority. Both searches
  // are long, and neither needs the other.
  std::stop_source needless;
  const std::stop_callback passes_on(options.stop, [&] { needless.request_stop(); });
  std::future<Found> second = std::async(std::launch::async, [&, others = predictor]() mutable {
    Communication in_order = communication;
    in_order.set_by_priority(false);
    PlanSearch::Options stoppable = options;
    stoppable.stop = needless.get_token();
    return Search(others, in_order, stoppable);
  });
  Found found = Search(predictor, communication, options);
  if (found.hidden) {
    needless.request_stop();
    // How far it has come by then is not the same in two runs.
    found.report.Add({.searches = 1, .needless = 1, .limited_stages = {}});
    return found;
  }
  const Found other = second.get();
  found.report.Add(other.report);
  found.rivals.insert(other.rivals.begin(), other.rivals.end());
  // Order by priority helps where a network is slower than was thought; not for nothing is it
  // given up.
  constexpr double kWorthPriority = 0.995;
  const double worth = WorthFifoUntried(other.best, predictor.cluster());
  if (other.seconds < found.untried_seconds * worth) found.untried = other.best;
  if (other.seconds < found.seconds * kWorthPriority) {
    found.best = other.best;
    found.seconds = other.seconds;
  }
  return found;
}

// Tries the best plan and, as long as others may be better, these.
class Trials {
 public:
  // No plan takes less than `least` seconds. `all_kinds` as of the searches.
  Trials(const PlanTrial& trial, double least, bool all_kinds, const std::stop_token& stop)
      : trial_(trial), least_(least), all_kinds_(all_kinds), stop_(stop) {}

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

  // Counts in `report`.
  std::optional<Plan> Run(SearchReport& report) {
    // The first stays first among equals.
    std::stable_sort(rivals_.begin() + 1, rivals_.end(),
                     [](const Rival& a, const Rival& b) { return a.behind < b.behind; });
    const int most_trials = all_kinds_ ? kMostTrialsOfCluster * clusters_ : kMostTrials;
    std::set<std::string> tried;
    int64_t messages = 0;
    for (const Rival& rival : rivals_) {
      if (best_ <= least_ * kAsGoodAsHidden || stop_.stop_requested()) break;
      if (rival.bound * kOptimism >= best_) continue;
      std::string serialized = rival.plan->SerializeAsString();
      if (tried.contains(serialized)) continue;
      report.more_to_try = static_cast<int>(tried.size()) == most_trials ||
                           messages > kMostTriedMessages * clusters_;
      if (report.more_to_try) break;
      tried.insert(std::move(serialized));
      const std::optional<double> seconds = trial_(*rival.plan, TrialLength::kShort);
      ++(seconds ? report.tried : report.too_large);
      messages += MessagesOfAll(*rival.plan);
      // Too large to be tried, as are its likes: the prediction is all there is.
      if (!seconds && clusters_ == 1) break;
      if (!seconds) continue;
      const double shorter = Steady(*rival.plan, *seconds);
      // The searches' own, which have spared messages, come first.
      if (shorter * kWorthMessages >= best_) continue;
      std::optional<double> longer = trial_(*rival.plan, TrialLength::kLong);
      if (longer) longer = Steady(*rival.plan, *longer);
      // A long trial of one of them says nothing about the other.
      const bool alike = !winner_ || longer.has_value() == best_is_long_;
      if (alike && longer.value_or(shorter) * kWorthMessages >= best_) continue;
      if (!alike && shorter * kWorthMessages >= best_shorter_) continue;
      best_shorter_ = shorter;
      best_is_long_ = longer.has_value();
      best_ = longer.value_or(shorter);
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

  // Workers that still catch up with the slowest one take less in some iterations, unless they wait
  // for nobody.
  double Steady(const Plan& plan, double tried) const {
    return plan.staleness() < 0 ? tried : std::max(tried, least_);
  }

  // Mostly the first one agrees with the prediction, and is the only one.
  static constexpr int kMostTrials = 6;
  // Where predictions are for other networks, or machines differ: the best of each search, the
  // policies', and some more.
  static constexpr int kMostTrialsOfCluster = 20;
  // Of an iteration, in all short trials but the last: some five seconds on one core.
  static constexpr int64_t kMostTriedMessages = 200000;
  // By how much predictions are too high, but for one in fifty.
  static constexpr double kOptimism = 0.97;

  const PlanTrial& trial_;
  double least_;
  bool all_kinds_;
  std::stop_token stop_;
  int clusters_ = 0;
  std::vector<Rival> rivals_;
  // In the winner's long trial, or its short one if there was none; and in the short one.
  double best_ = std::numeric_limits<double>::infinity();
  double best_shorter_ = best_;
  bool best_is_long_ = false;
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

void SearchReport::Add(const SearchReport& other) {
  searches += other.searches;
  predicted += other.predicted;
  tried += other.tried;
  too_large += other.too_large;
  more_to_try |= other.more_to_try;
  hidden += other.hidden;
  complete += other.complete;
  limited += other.limited;
  needless += other.needless;
  limited_stages.insert(other.limited_stages.begin(), other.limited_stages.end());
}

Plan PlanByTime(Predictor& predictor, const Communication& communication, const PlanTrial& trial,
                std::span<Predictor> farther, const std::stop_token& stop,
                const SearchListener& searched) {
  if (communication.local_steps() > 1) {
    return PlanLocalSteps(farther.empty() ? predictor : farther.back(), communication);
  }
  // Where networks are not what is predicted, or machines differ, of which some come to be ahead.
  const bool all_kinds = !farther.empty() || !predictor.cluster().deviations.empty();
  const PlanSearch::Options options{
      .all_kinds = all_kinds, .is_tried = static_cast<bool>(trial), .stop = stop};
  std::vector<Found> found = {SearchBoth(predictor, communication, options)};
  for (Predictor& other : farther) found.push_back(SearchBoth(other, communication, options));
  SearchReport report;
  for (const Found& one : found) report.Add(one.report);
  Plan plan = found.back().untried;
  if (trial) {
    Trials trials(trial, predictor.ComputeSeconds(), all_kinds, stop);
    for (size_t i = 0; i < found.size(); ++i) trials.Add(found[i], i == 0);
    plan = trials.Run(report).value_or(std::move(plan));
  }
  if (searched && !stop.stop_requested()) searched(report);
  NearestToTrial(predictor, farther, plan).Annotate(plan);
  return plan;
}

}  // namespace poseidon
