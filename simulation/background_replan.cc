#include "simulation/background_replan.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/error.h"
#include "core/process/background_thread.h"
#include "simulation/plan_trial.h"

namespace poseidon {
namespace {

bool IsThere(const std::future<Replanned>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

Replanned Search(const Job& job, const wire::PlanAndModel& current,
                 const wire::LayerTimes& measured, double factor, const std::stop_token& given_up) {
  RunInBackground();
  return Replan(
      job, current, measured, factor,
      [&](const Plan& plan, const Job& tried, const ModelSpec& model, TrialLength length) {
        if (given_up.stop_requested()) {
          throw Error(ExitCode::kInterrupted, "nobody waits for the plan");
        }
        return TryPlan(plan, tried, model, length);
      },
      given_up);
}

// A better plan is welcome, and training needs none.
void TellOfFailure(const std::exception& error) {
  LOG(WARNING) << "training keeps its plan, as the search for a better one has failed: "
               << error.what();
}

bool HaveSameBuckets(const Plan& a, const Plan& b) {
  return std::ranges::equal(a.buckets(), b.buckets(), [](const auto& one, const auto& other) {
    return one.SerializeAsString() == other.SerializeAsString();
  });
}

}  // namespace

BackgroundReplan::~BackgroundReplan() {
  GiveUp();
  for (const std::future<Replanned>& future : left_) future.wait();
}

void BackgroundReplan::Start(const Job& job, const wire::PlanAndModel& current,
                             const wire::LayerTimes& measured) {
  Ask(job, current, measured, MeanComputeFactor(job, current));
}

void BackgroundReplan::Ask(const Job& job, const wire::PlanAndModel& current,
                           const wire::LayerTimes& measured, double factor) {
  GiveUp();
  const Plan& plan = current.plan();
  asked_ = Asked{.job = job,
                 .measured = measured,
                 .factor = factor,
                 .layout = plan.layout(),
                 .workers = plan.workers(),
                 .servers = plan.servers(),
                 .found = {}};
  given_up_ = std::stop_source();
  try {
    replanned_ = std::async(std::launch::async, Search, job, current, measured, factor,
                            given_up_.get_token());
  } catch (const std::exception& error) {  // as where there may be no more threads
    TellOfFailure(error);
    asked_.reset();
  }
}

std::optional<Replanned> BackgroundReplan::Take() {
  if (!replanned_.valid() || !IsThere(replanned_)) return std::nullopt;
  try {
    Replanned replanned = std::exchange(replanned_, {}).get();
    if (replanned.plan) asked_->found = replanned.plan->plan();
    asked_->stays = !replanned.plan;
    return replanned;
  } catch (const std::exception& error) {
    TellOfFailure(error);
    asked_.reset();
    return std::nullopt;
  }
}

bool BackgroundReplan::IsOpen(const Asked& asked, const Plan& plan) {
  if (asked.found) return true;
  if (!asked.stays) return plan.layout() != asked.layout;
  return plan.workers() != asked.workers || plan.servers() != asked.servers;
}

bool BackgroundReplan::PlanChanged(const wire::PlanAndModel& current) {
  if (!asked_) return false;
  if (asked_->found && HaveSameBuckets(*asked_->found, current.plan())) {
    asked_.reset();
    return false;
  }
  if (!IsOpen(*asked_, current.plan())) return false;
  const Asked asked = *std::exchange(asked_, {});
  Ask(asked.job, current, asked.measured, asked.factor);
  return asked.found && asked_;  // unless no thread could be started
}

void BackgroundReplan::GiveUp() {
  std::erase_if(left_, [](const std::future<Replanned>& future) { return IsThere(future); });
  if (!replanned_.valid()) return;
  given_up_.request_stop();
  left_.push_back(std::move(replanned_));
}

}  // namespace poseidon
