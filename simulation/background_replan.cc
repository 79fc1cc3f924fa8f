#include "simulation/background_replan.h"

#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/process/background_thread.h"
#include "simulation/plan_trial.h"

namespace poseidon {
namespace {

bool IsThere(const std::future<Replanned>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

BackgroundReplan::~BackgroundReplan() {
  GiveUp();
  for (const std::future<Replanned>& future : left_) future.wait();
}

void BackgroundReplan::Start(const Job& job, const wire::PlanAndModel& current,
                             const wire::LayerTimes& measured) {
  GiveUp();
  given_up_ = std::stop_source();
  replanned_ = std::async(std::launch::async, [=, given_up = given_up_.get_token()] {
    RunInBackground();
    return Replan(
        job, current, measured,
        [&](const Plan& plan, const Job& tried, const ModelSpec& model, TrialLength length) {
          if (given_up.stop_requested()) {
            throw Error(ExitCode::kInterrupted, "nobody waits for the plan");
          }
          return TryPlan(plan, tried, model, length);
        },
        given_up);
  });
}

std::optional<Replanned> BackgroundReplan::Take() {
  if (!replanned_.valid() || !IsThere(replanned_)) return std::nullopt;
  return std::exchange(replanned_, {}).get();
}

void BackgroundReplan::GiveUp() {
  std::erase_if(left_, [](const std::future<Replanned>& future) { return IsThere(future); });
  if (!replanned_.valid()) return;
  given_up_.request_stop();
  left_.push_back(std::move(replanned_));
}

}  // namespace poseidon
