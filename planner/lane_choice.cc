#include "planner/lane_choice.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <limits>
#include <utility>
#include <vector>

#include "proto/bucket.h"

namespace poseidon {
namespace {

// What more lanes gain below this is not worth their cores; it is about what predictions know.
constexpr double kAsGood = 1.01;

bool IsHidden(const Plan& plan) { return ExpectedIterationMs(plan) <= kAsGood * plan.compute_ms(); }

std::vector<int> NumbersUpTo(int most) {
  std::vector<int> numbers;
  for (int lanes = 1; lanes < most; lanes *= 2) numbers.push_back(lanes);
  numbers.push_back(most);
  return numbers;
}

// Makes the plans for some numbers of lanes ahead of whoever takes them.
class PlansAhead {
 public:
  // `plan_for` outlives this. All are to stop when `stop` is requested.
  PlansAhead(std::vector<int> numbers, size_t at_once, const PlanForLanes& plan_for,
             const std::stop_token& stop)
      : numbers_(std::move(numbers)),
        at_once_(at_once),
        plan_for_(plan_for),
        passes_on_(stop, [this] { needless_.request_stop(); }) {}
  // Waits for those that nobody has taken, which are to stop.
  ~PlansAhead() { needless_.request_stop(); }
  PlansAhead(const PlansAhead&) = delete;
  PlansAhead& operator=(const PlansAhead&) = delete;

  bool empty() const { return taken_ == numbers_.size(); }
  // For the next number.
  Plan Take() {
    while (plans_.size() < std::min(taken_ + at_once_, numbers_.size())) {
      plans_.push_back(std::async(std::launch::async, plan_for_, numbers_[plans_.size()],
                                  needless_.get_token()));
    }
    return plans_[taken_++].get();
  }

 private:
  std::vector<int> numbers_;
  size_t at_once_;
  const PlanForLanes& plan_for_;
  std::stop_source needless_;
  std::stop_callback<std::function<void()>> passes_on_;
  std::vector<std::future<Plan>> plans_;
  size_t taken_ = 0;
};

// Those for 1, 2, 4, ... and `most` lanes, up to the first that hides what it exchanges.
std::vector<Plan> PlansUntilHidden(int most, int at_once, const PlanForLanes& plan_for,
                                   const std::stop_token& stop) {
  PlansAhead ahead(NumbersUpTo(most), at_once, plan_for, stop);
  std::vector<Plan> plans;
  do {
    plans.push_back(ahead.Take());
  } while (!ahead.empty() && !IsHidden(plans.back()) && !stop.stop_requested());
  return plans;
}

}  // namespace

Plan PlanWithLanes(int most, int at_once, const PlanForLanes& plan_for,
                   const std::stop_token& stop) {
  // A search for other lanes ends with other schemes, so each number has its own.
  const std::vector<Plan> plans = PlansUntilHidden(most, at_once, plan_for, stop);
  double least = std::numeric_limits<double>::infinity();
  for (const Plan& plan : plans) least = std::min(least, ExpectedIterationMs(plan));
  Plan chosen = *std::find_if(plans.begin(), plans.end(), [least](const Plan& plan) {
    return IsHidden(plan) || ExpectedIterationMs(plan) <= kAsGood * least;
  });
  for (const Plan& plan : plans) {
    if (plan.lanes() == chosen.lanes()) continue;
    OtherLanes& other = *chosen.add_other_lanes();
    other.set_lanes(plan.lanes());
    other.set_iteration_ms(ExpectedIterationMs(plan));
  }
  chosen.set_planned_lanes(true);
  return chosen;
}

std::string LanesText(const Plan& plan) {
  std::string text =
      std::to_string(plan.lanes()) + (plan.lanes() == 1 ? " data lane, " : " data lanes, ");
  if (!plan.planned_lanes()) return text + "as given";
  if (plan.other_lanes().empty()) {
    return text + (IsHidden(plan) ? "as the exchange is hidden behind computing"
                                  : "as the machines have no cores for more");
  }
  const bool of_own_links =
      std::ranges::count(plan.other_lanes(), plan.lanes(), &OtherLanes::lanes) > 0;
  text += of_own_links ? "planned for the machines' own links: by these alone " : "planned: ";
  for (const OtherLanes& other : plan.other_lanes()) {
    char milliseconds[50];
    std::snprintf(milliseconds, sizeof milliseconds, " %.2f ms",
                  other.iteration_ms() / std::max(1, plan.local_steps()));
    const bool first = &other == &plan.other_lanes(0);
    text += (first ? "" : ", ") + std::to_string(other.lanes()) + (first ? " would take" : "") +
            milliseconds;
  }
  if (plan.local_steps() > 1) text += " a step";
  return text;
}

}  // namespace poseidon
