#include "scheduler/stragglers/batch_balancer.h"

#include <algorithm>
#include <cstdio>

#include "core/arithmetic/median.h"
#include "planner/batch_parts.h"
#include "proto/plan_members.h"
#include "transport/monitor/own_seconds.h"

namespace poseidon {
namespace {

// A worker that computes nothing at all would otherwise be infinitely fast.
constexpr double kLeastSeconds = 1e-6;

std::string Describe(const std::vector<int64_t>& parts, double before, double after) {
  std::string list;
  for (const int64_t part : parts) list += (list.empty() ? "" : ", ") + std::to_string(part);
  char text[160];
  std::snprintf(text, sizeof text,
                "the slowest worker computes and waits for data for %.1f ms an iteration, and "
                "would for %.1f ms",
                1000 * before, 1000 * after);
  return std::string(text) + " with these parts of the batch, by worker: " + list;
}

}  // namespace

void BatchBalancer::SetPlan(const Plan& plan) {
  plan_ = plan;
  Forget();
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
  Forget();
  return decision;
}

std::optional<BatchBalancer::Rebalanced> BatchBalancer::Decide(int64_t left) const {
  // What is left would not pay for going over.
  if (left < kIterations) return std::nullopt;
  std::vector<double> speeds;
  int64_t samples = 0;
  double before = 0;
  for (const auto& [place, seconds] : seconds_) {
    const double own = std::max(kLeastSeconds, Median(seconds));
    speeds.push_back(static_cast<double>(plan_.parts(place)) / own);
    samples += plan_.parts(place);
    before = std::max(before, own);
  }
  Rebalanced next{DivideBatch(samples, speeds), ""};
  double after = 0;
  for (size_t i = 0; i < speeds.size(); ++i) {
    after = std::max(after, static_cast<double>(next.parts[i]) / speeds[i]);
  }
  if (after > (1 - kWorthwhileGain) * before) return std::nullopt;
  next.why = Describe(next.parts, before, after);
  return next;
}

}  // namespace poseidon
