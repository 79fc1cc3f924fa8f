#include "planner/plan_search.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "planner/cost/exchange_tables.h"
#include "planner/planner.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// Messages that all predictions of each stage may have together, after those of the other policies:
// one to two seconds on one core for all stages. What one leaves over is the last one's.
constexpr int64_t kMostFamilyMessages = 120000;
constexpr int64_t kMostSizeMessages = 120000;
// Of those, what is kept for other chunks than the job's own.
constexpr int64_t kMostOtherChunkMessages = 60000;
constexpr int64_t kMostCombinationMessages = 60000;
constexpr int64_t kMostImproveMessages = 60000;
// For what is nearly as good, of what is left over.
constexpr int64_t kMostRivalMessages = 10000;
constexpr int64_t kMostSearchMessages =
    kMostFamilyMessages + kMostSizeMessages + kMostCombinationMessages + kMostImproveMessages;
// A plan that is better by so much is a reason to look for more, so what its stage had predicted up
// to it does not count; unless a search has had eight times its messages, some ten seconds.
constexpr double kWorthGoingOn = 0.995;
constexpr int64_t kMostOfAllMessages = 8 * kMostSearchMessages;
// A plan of more messages is not tried: one prediction would take most of the search. The policies
// are, however many they have.
constexpr int64_t kMostCandidateMessages = 100000;
// That the predictions by which messages are spared may have together: a tenth of a search.
constexpr int64_t kMostSparingMessages = 30000;
constexpr int64_t kAnyMessages = std::numeric_limits<int64_t>::max();

// Of chunks and buckets, where a family's grid is chosen before its sizes are.
constexpr int64_t kUsualBytes = 4 << 20;

// What is predicted to take longer than the best by more is no rival of it: predictions are within
// a tenth.
constexpr double kRival = 1.1;

// An iteration that gets longer by less is no reason to give up precision.
constexpr double kWorthPrecision = 1.001;

// Refining a plan by less is not worth it: finer cuts cost what the model does not know, such as
// cores that several nodes share.
constexpr double kWorthwhile = 0.999;

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

}  // namespace

double WorthFifoUntried(const Plan& fifo, const ClusterModel& cluster) {
  const bool all_workers = Representatives(fifo, cluster) == 0;
  const bool predicted = MessagesPerIteration(fifo, cluster) <= kMostMessages;
  return all_workers && predicted ? 1 : kWorthFifoUntried;
}

PlanSearch::PlanSearch(Predictor& predictor, const Communication& communication,
                       const Options& options)
    : options_(options),
      predictor_(predictor),
      book_(predictor.book()),
      communication_(communication),
      candidates_(predictor.book(), communication.codec()),
      grids_(GridsFor(predictor.book(), communication)),
      seconds_(std::numeric_limits<double>::infinity()),
      least_(seconds_),
      untried_seconds_(seconds_) {}

void PlanSearch::Run() {
  TryPolicies();
  all_messages_ = 0;
  messages_ = 0;
  TryFamilies(BeginStage("families", kMostFamilyMessages));
  TrySizes(BeginStage("sizes", kMostSizeMessages));
  TryCombinations(BeginStage("combinations of schemes", kMostCombinationMessages));
  Improve(best_, seconds_, BeginStage("changes to the best", kMostSearchMessages - messages_));
  ImproveRivals(BeginStage("changes to the next best",
                           std::min(kMostRivalMessages, kMostSearchMessages - messages_)));
  if (options_.is_tried && !IsStopped()) SpareMessages();
  DropNeedlessCodecs();
  TryFifo();
}

bool PlanSearch::hidden() const { return least_ <= predictor_.ComputeSeconds() * kAsGoodAsHidden; }

bool PlanSearch::MayGoOn(int64_t most) {
  if (!GoesOn()) return false;
  if (messages_ < most) return true;
  limited_stages_.insert(stage_name_);
  return false;
}

SearchReport PlanSearch::report() const {
  SearchReport report;
  report.searches = 1;
  report.predicted = predicted_;
  if (hidden()) {
    report.hidden = 1;
  } else if (limited_stages_.empty()) {
    report.complete = 1;
  } else {
    report.limited = 1;
    report.limited_stages = limited_stages_;
  }
  return report;
}

Plan PlanSearch::Build(const PlanCandidate& candidate) const {
  Plan plan = MakePlan(book_, communication_, candidate.buckets);
  if (candidate.fifo) plan.set_fifo(true);
  if (plan.grid_size() > 0) SetGrid(candidate.grid, plan);
  return plan;
}

double PlanSearch::Estimate(const PlanCandidate& candidate) const {
  return predictor_.Estimate(Build(candidate)).seconds;
}

std::optional<double> PlanSearch::Predict(const PlanCandidate& candidate, int64_t most_messages,
                                          double limit) {
  const Plan plan = Build(candidate);
  std::string serialized = plan.SerializeAsString();
  if (tried_.contains(serialized)) return std::nullopt;
  const double least = predictor_.LeastSeconds(plan);
  const int64_t messages = MessagesPerIteration(plan, predictor_.cluster());
  if (messages > most_messages) {
    if (least < limit) limited_stages_.insert(stage_name_);
    return std::nullopt;
  }
  tried_.insert(std::move(serialized));
  const std::string kind = KindOf(plan);
  if (least >= limit) {
    if (options_.all_kinds) rivals_.try_emplace(kind, least, candidate);
    return std::nullopt;
  }
  ++predicted_;
  messages_ += messages;
  all_messages_ += messages;
  // Worth to know is whether it is the best, or the best of its kind.
  double most = seconds_ * kRival;
  const auto rival = rivals_.find(kind);
  if (rival != rivals_.end()) most = std::min(most, rival->second.first);
  const double seconds = predictor_.Predict(plan, std::max(most, limit)).seconds;
  Keep(kind, candidate, seconds);
  return seconds;
}

bool PlanSearch::Take(const PlanCandidate& candidate, double seconds, double worth) {
  if (seconds >= seconds_ * worth) return false;
  if (seconds < seconds_ * kWorthGoingOn && all_messages_ < kMostOfAllMessages) messages_ = stage_;
  seconds_ = seconds;
  least_ = seconds;
  best_ = candidate;
  return true;
}

bool PlanSearch::Try(const PlanCandidate& candidate, int64_t most_messages, double worth) {
  const std::optional<double> seconds = Predict(candidate, most_messages, seconds_ * worth);
  return seconds && Take(candidate, *seconds, worth);
}

void PlanSearch::TryInOrder(std::vector<Estimated>& candidates, int64_t most) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [estimate, candidate] : candidates) {
    if (!MayGoOn(most)) return;
    Try(candidate, kMostCandidateMessages);
  }
}

void PlanSearch::Keep(const std::string& kind, const PlanCandidate& candidate, double seconds) {
  const auto [rival, is_new] = rivals_.try_emplace(kind, seconds, candidate);
  if (!is_new && seconds < rival->second.first) rival->second = {seconds, candidate};
}

PlanSearch::Rivals PlanSearch::rivals() const {
  Rivals rivals;
  for (const auto& [kind, rival] : rivals_) {
    rivals.emplace(kind, std::make_pair(rival.first, Build(rival.second)));
  }
  return rivals;
}

void PlanSearch::TryPolicies() {
  for (const Communication::Policy policy :
       {Communication::BYTES, Communication::ALL_PS, Communication::ALL_SFB,
        Communication::ALL_RING, Communication::ALL_HALVING_DOUBLING, Communication::ALL_TORUS,
        Communication::ALL_ADAM}) {
    Communication communication = communication_;
    communication.set_policy(policy);
    PlanCandidate candidate{ChooseBuckets(book_, communication), {}, !communication.by_priority()};
    const std::vector<BucketChoice> coded = candidate.buckets;
    for (BucketChoice& bucket : candidate.buckets) bucket.codec = FP32;
    if (policy == Communication::ALL_TORUS) {
      const double most =
          options_.all_kinds ? std::numeric_limits<double>::infinity() : seconds_ * kRival;
      candidate.grid = BestGrid(predictor_, Build(candidate), grids_, most);
    }
    Try(candidate, kAnyMessages);
    candidate.buckets = coded;
    Try(candidate, kAnyMessages);
    if (options_.all_kinds) KeepPolicy(candidate, communication);
    if (IsStopped()) return;
  }
}

void PlanSearch::KeepPolicy(const PlanCandidate& candidate, Communication communication) {
  policies_.push_back(Build(candidate));
  if (communication.bucket_bytes() == 0) return;
  communication.set_bucket_bytes(0);
  PlanCandidate split = candidate;
  split.buckets = ChooseBuckets(book_, communication);
  policies_.push_back(Build(split));
}

void PlanSearch::TryFamilies(int64_t most) {
  std::vector<Estimated> finalists;
  std::vector<int64_t> chunk_bytes(std::begin(kChunkBytes), std::end(kChunkBytes));
  chunk_bytes.push_back(communication_.kv_pair_bytes());
  for (const PlanFamily& family : candidates_.Families()) {
    if (IsStopped()) return;
    for (const Grid& grid : GridsOf(candidates_.Make(family, kUsualBytes, kUsualBytes))) {
      double least = std::numeric_limits<double>::infinity();
      PlanCandidate best;
      for (const int64_t merge : kMergeBytes) {
        for (const int64_t chunk : chunk_bytes) {
          PlanCandidate candidate = candidates_.Make(family, chunk, merge);
          candidate.grid = grid;
          const Plan plan = Build(candidate);
          const double estimate = predictor_.Estimate(plan).seconds;
          families_.push_back({estimate, MessagesPerIteration(plan, predictor_.cluster()),
                               chunk == communication_.kv_pair_bytes(), candidate});
          if (estimate >= least) continue;
          least = estimate;
          best = candidate;
        }
      }
      finalists.push_back({least, std::move(best)});
    }
  }
  TryInOrder(finalists, most);
}

void PlanSearch::TrySizes(int64_t most) {
  std::stable_sort(families_.begin(), families_.end(),
                   [](const auto& a, const auto& b) { return a.messages < b.messages; });
  const auto try_those = [&](int64_t until, bool own_chunks_only) {
    for (const FamilyMember& member : families_) {
      if (own_chunks_only && !member.own_chunks) continue;
      if (member.estimate >= seconds_) continue;
      // What the first round leaves over the second one comes to.
      if (own_chunks_only ? messages_ >= until || !GoesOn() : !MayGoOn(until)) return;
      Try(member.candidate, kMostCandidateMessages);
    }
  };
  try_those(most - kMostOtherChunkMessages, true);
  try_those(most, false);
}

std::vector<Grid> PlanSearch::GridsOf(const PlanCandidate& candidate) const {
  const Plan plan = Build(candidate);
  if (plan.grid_size() == 0) return {Grid()};
  Grid halving;
  for (const GridDimension& dimension : plan.grid()) {
    halving.push_back({dimension.size(), HALVING_DOUBLING});
  }
  return {BestByEstimate(predictor_, plan, grids_, 1).front(), Grid(), halving};
}

void PlanSearch::TryCombinations(int64_t most) {
  std::vector<Estimated> combinations;
  for (PlanCandidate& combination : candidates_.Combinations(best_)) {
    if (IsStopped()) return;
    const double estimate = Estimate(combination);
    combinations.push_back({estimate, std::move(combination)});
  }
  TryInOrder(combinations, most);
}

void PlanSearch::Improve(PlanCandidate candidate, double seconds, int64_t most) {
  bool improved = true;
  while (improved && MayGoOn(most)) {
    improved = false;
    std::vector<PlanCandidate> neighbors = candidates_.Neighbors(candidate);
    neighbors.push_back(Merged(candidate));
    AddGrids(candidate, neighbors);
    for (PlanCandidate& neighbor : neighbors) {
      if (!MayGoOn(most)) return;
      const double limit = seconds * kWorthwhile;
      const std::optional<double> changed = Predict(neighbor, kMostCandidateMessages, limit);
      if (!changed || *changed >= limit) continue;
      Take(neighbor, *changed, kWorthwhile);
      candidate = std::move(neighbor);
      seconds = *changed;
      improved = true;
    }
  }
}

void PlanSearch::ImproveRivals(int64_t most) {
  std::vector<Estimated> rivals;
  for (const auto& [kind, rival] : rivals_) {
    if (rival.first > seconds_ && rival.first < seconds_ * kRival) rivals.push_back(rival);
  }
  std::stable_sort(rivals.begin(), rivals.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [seconds, candidate] : rivals) Improve(candidate, seconds, most);
}

void PlanSearch::AddGrids(const PlanCandidate& candidate,
                          std::vector<PlanCandidate>& neighbors) const {
  constexpr size_t kMost = 3;
  const Plan plan = Build(candidate);
  if (plan.grid_size() == 0) return;
  for (const Grid& grid : BestByEstimate(predictor_, plan, grids_, kMost)) {
    neighbors.push_back(candidate);
    neighbors.back().grid = grid;
  }
}

PlanCandidate PlanSearch::Merged(const PlanCandidate& candidate) const {
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

void PlanSearch::SpareMessages() {
  std::vector<std::pair<int64_t, PlanCandidate>> sparing;
  const auto add = [&](const PlanCandidate& candidate) {
    sparing.push_back({MessagesOfAll(Build(candidate)), candidate});
  };
  for (const FamilyMember& member : families_) {
    if (member.estimate < seconds_ * kRival && !AddsCodec(member.candidate)) add(member.candidate);
  }
  for (const PlanCandidate& neighbor : candidates_.Neighbors(best_)) add(neighbor);
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
    ++predicted_;
    const double seconds = predictor_.Predict(plan, worth).seconds;
    if (seconds > worth) continue;
    Keep(KindOf(plan), candidate, seconds);
    seconds_ = seconds;
    best_ = candidate;
    return;
  }
}

bool PlanSearch::AddsCodec(const PlanCandidate& candidate) const {
  const auto coded = [](const PlanCandidate& plan) {
    return std::any_of(plan.buckets.begin(), plan.buckets.end(),
                       [](const BucketChoice& bucket) { return bucket.codec != FP32; });
  };
  return coded(candidate) && !coded(best_);
}

void PlanSearch::DropNeedlessCodecs() {
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

void PlanSearch::TryFifo() {
  untried_ = best_;
  untried_seconds_ = seconds_;
  if (best_.fifo) return;
  PlanCandidate fifo = best_;
  fifo.fifo = true;
  const double worth = WorthFifoUntried(Build(fifo), predictor_.cluster());
  if (!Try(fifo, kAnyMessages) || seconds_ >= untried_seconds_ * worth) return;
  untried_ = best_;
  untried_seconds_ = seconds_;
}

}  // namespace poseidon
