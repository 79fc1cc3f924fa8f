#include "proto/rate_advice.h"

#include <cstdio>

#include "proto/bucket.h"

namespace poseidon {
namespace {

struct Lateness {
  std::string cause;
  int divisor = 1;  // of the rate
};

std::optional<Lateness> LatenessOf(const Plan& plan) {
  if (plan.staleness() > 0) {
    const std::string iterations =
        std::to_string(plan.staleness()) + (plan.staleness() == 1 ? " iteration" : " iterations");
    return Lateness{"gradients are up to " + iterations + " late (communication.staleness)",
                    plan.staleness() + 1};
  }
  if (plan.staleness() < 0 && plan.workers() > 1) {
    return Lateness{"gradients are about " + std::to_string(plan.workers() - 1) +
                        " updates late (communication.staleness: -1)",
                    plan.workers()};
  }
  constexpr int kErrorFeedback = 3;  // measured
  for (const BucketPlan& bucket : plan.buckets()) {
    if (!LosesMost(bucket.codec())) continue;
    return Lateness{"a part of each gradient is sent iterations later (communication.codec: " +
                        WireCodec_Name(bucket.codec()) + ")",
                    kErrorFeedback};
  }
  return std::nullopt;
}

std::string Rate(float rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", static_cast<double>(rate));
  return text;
}

}  // namespace

std::optional<std::string> RateAdvice(const Plan& plan, const UpdateRuleSpec& rule) {
  const std::optional<Lateness> late = LatenessOf(plan);
  if (!late) return std::nullopt;
  const float base_lr = rule.has_solver_base_lr() ? rule.solver_base_lr() : rule.base_lr();
  return late->cause + ": if training diverges, try base_lr " +
         Rate(base_lr / static_cast<float>(late->divisor)) + ", 1/" +
         std::to_string(late->divisor) + " of " + Rate(base_lr);
}

std::string DivergenceAdvice(const Plan& plan, const UpdateRuleSpec& rule) {
  return RateAdvice(plan, rule).value_or("a smaller base_lr usually helps");
}

}  // namespace poseidon
