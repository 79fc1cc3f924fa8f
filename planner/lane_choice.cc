#include "planner/lane_choice.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include "proto/bucket.h"

namespace poseidon {
namespace {

// What more lanes gain below this is not worth their cores; it is about what predictions know.
constexpr double kAsGood = 1.01;

bool IsHidden(const Plan& plan) { return ExpectedIterationMs(plan) <= kAsGood * plan.compute_ms(); }

}  // namespace

Plan PlanWithLanes(int most, const PlanForLanes& plan_for) {
  // A search for other lanes ends with other schemes, so each number has its own.
  std::vector<Plan> plans;
  for (int lanes = 1; lanes < most && (plans.empty() || !IsHidden(plans.back())); lanes *= 2) {
    plans.push_back(plan_for(lanes));
  }
  if (plans.empty() || !IsHidden(plans.back())) plans.push_back(plan_for(most));
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
  text += "planned: ";
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
