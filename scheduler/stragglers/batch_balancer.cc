#include "scheduler/stragglers/batch_balancer.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "core/arithmetic/median.h"
#include "core/text/listed.h"
#include "planner/batch_parts.h"
#include "proto/plan_members.h"
#include "transport/monitor/own_seconds.h"

namespace poseidon {
namespace {

// A worker that computes nothing at all would otherwise be infinitely fast.
constexpr double kLeastSeconds = 1e-6;

std::string Describe(const std::vector<int64_t>& parts, double before, double after) {
  char text[160];
  std::snprintf(text, sizeof text,
                "the slowest worker computes and waits for data for %.1f ms an iteration, and "
                "would for at most %.1f ms",
                1000 * before, 1000 * after);
  return std::string(text) + " with these parts of the batch, by worker: " + Listed(parts);
}

}  // namespace

void BatchBalancer::SetPlan(const Plan& plan) {
  if (plan.parts_size() != plan_.parts_size()) growths_.clear();  // of other workers
  plan_ = plan;
  seconds_.clear();
}

void BatchBalancer::Forget() {
  seconds_.clear();
  growths_.clear();
}

std::optional<BatchBalancer::Rebalanced> BatchBalancer::Add(const wire::Progress& progress) {
  const int place = PlaceOfWorker(plan_, progress.rank());
  const bool is_test = progress.has_test_accuracy() || progress.has_test_loss();
  if (is_test || plan_.parts_size() < 2 || place < 0 || place >= plan_.parts_size() ||
      progress.iteration() < plan_.start_iteration()) {
    return std::nullopt;
  }
  std::vector<double>& seconds = seconds_[place];
  seconds.push_back(OwnSeconds(progress));
  if (seconds.size() < kIterations || static_cast<int>(seconds_.size()) < plan_.parts_size() ||
      std::ranges::any_of(seconds_,
                          [](const auto& of) { return of.second.size() < kIterations; })) {
    return std::nullopt;
  }
  const int64_t left = progress.total_iterations() - progress.iteration();
  std::optional<Rebalanced> decision = Decide(left);
  seconds_.clear();
  return decision;
}

std::optional<BatchBalancer::Rebalanced> BatchBalancer::Decide(int64_t left) {
  // What is left would not pay for going over.
  if (left < kIterations) return std::nullopt;
  std::vector<double> owns;
  std::vector<double> speeds;
  int64_t samples = 0;
  for (const auto& [place, seconds] : seconds_) {
    owns.push_back(std::max(kLeastSeconds, Median(seconds)));
    speeds.push_back(static_cast<double>(plan_.parts(place)) / owns.back());
    samples += plan_.parts(place);
  }
  const double before = *std::max_element(owns.begin(), owns.end());
  Rebalanced next{DivideBatch(samples, speeds), ""};
  double after = 0;
  std::vector<int> underrated;
  for (int i = 0; i < plan_.parts_size(); ++i) {
    const auto at = static_cast<size_t>(i);
    after = std::max(after, static_cast<double>(next.parts[at]) / speeds[at]);
    if (IsUnderrated(i, owns[at], before, next.parts[at])) underrated.push_back(i);
  }
  if (after > (1 - kWorthwhileGain) * before && underrated.empty()) return std::nullopt;
  for (auto& [place, growth] : growths_) {
    growth.undone |= next.parts[static_cast<size_t>(place)] <= growth.part;
  }
  for (const int place : underrated) {
    growths_[place] = {plan_.parts(place), speeds[static_cast<size_t>(place)]};
  }
  next.why = Describe(next.parts, before, after);
  return next;
}

bool BatchBalancer::IsUnderrated(int place, double own, double slowest, int64_t next) const {
  const auto part = static_cast<double>(plan_.parts(place));
  const double equal =
      static_cast<double>(std::accumulate(plan_.parts().begin(), plan_.parts().end(), int64_t{0})) /
      plan_.parts_size();
  const auto last = growths_.find(place);
  const bool was_tried =
      last != growths_.end() && last->second.undone && part / own < kHealed * last->second.speed;
  return !was_tried && part < kSmallPart * equal && own < kIdle * slowest &&
         static_cast<double>(next) >= kWorthwhileGrowth * part;
}

}  // namespace poseidon
