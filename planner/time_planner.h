// Policy TIME: the plan with the shortest predicted iteration.
//
// Free are the scheme of every layer, which consecutive layers are merged into a bucket (MG-WFBP:
// Shi et al., arXiv 1811.11141), the size of chunks, the algorithm along the torus's dimensions,
// and which buckets use the codec that the job allows. The search begins with every policy that has
// one scheme, and the paper's; goes through families, their sizes and combinations; and improves
// the best one step by step by prediction (planner/plan_search.h). So it never ends with a plan
// that is predicted to be slower than what any other policy makes, nor, where plans are tried, than
// its own without priorities. Where they are not, priorities are given up for a lot only
// (WorthFifoUntried).
//
// Predictions are good, not perfect, so the best plans of different kinds can be tried before one
// of them is chosen. Then the search ends with a plan of few messages among those that are
// predicted to take as long, but for kWorthMessages.
//
// A network in tiers is no cluster that is predicted. Then the search is made once for each of the
// clusters on one switch that stand for it (FartherClusters), and what all of them find is tried,
// every scheme alone with it: predictions for one switch say little of which is best. So it is, in
// one search, where machines are known to differ.
//
// With local steps the search is among the schemes without factors, one for all layers, and nothing
// is tried.
//
// Deterministic: how long it searches is counted in messages, not in time. Some
// seconds for 200 layers and thousands of workers.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>

#include "planner/predictor.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// A long trial sees workers that come to be apart only after tens of iterations.
enum class TrialLength { kShort, kLong };
// Seconds that an iteration takes under the plan; nullopt if that would take too long to find out.
using PlanTrial = std::function<std::optional<double>(const Plan&, TrialLength)>;

// What policy TIME has looked at before it chose a plan, and what ended that.
struct SearchReport {
  int searches = 0;          // for each number of lanes by priority and in order, and for each tier
  int64_t predicted = 0;     // plans
  int64_t tried = 0;         // of them, in a trial
  int64_t too_large = 0;     // for a trial
  bool more_to_try = false;  // trials ended with their limit
  // Searches that ended as the exchange was hidden, as nothing better was left, as they had
  // predicted as many messages as they may, and as another had found what hides the exchange.
  int hidden = 0;
  int complete = 0;
  int limited = 0;
  int needless = 0;
  std::set<std::string> limited_stages;  // "sizes", of those that were limited

  void Add(const SearchReport& other);
};

// Is told of each search that a plan comes from, or was compared with: the same ones in every run.
using SearchListener = std::function<void(const SearchReport&)>;

// With predictions (Predictor::Annotate), and simulated_ms if it was tried; of several predictors
// those of the one that is nearest to the trial. communication.policy does not matter. `trial` may
// be empty; it is asked about a few plans, or up to twenty for each search where all schemes' are
// tried, and in a long trial about those that are the best so far in a short one.
//
// `predictor` is of the cluster that no machine has more of, `farther` of those that have less, the
// last one least. Without a trial the last one's plan is taken.
//
// Once a stop is requested nobody wants the plan any more, and it is any. `searched` may be empty.
Plan PlanByTime(Predictor& predictor, const Communication& communication,
                const PlanTrial& trial = {}, std::span<Predictor> farther = {},
                const std::stop_token& stop = {}, const SearchListener& searched = {});

}  // namespace poseidon
