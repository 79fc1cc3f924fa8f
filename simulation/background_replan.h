// BackgroundReplan: replanning with trials (planner/replan.h, simulation/plan_trial.h) in a thread
// of its own. It takes seconds of a core, in which whoever has asked for it goes on with what
// comes; who trains on the same machine comes before it. A search that fails, as for lack of memory
// or threads, makes no plan, and the log has a warning that says why.
//
//   BackgroundReplan replan;
//   replan.Start(job, current, measured);
//   ...
//   if (const std::optional<Replanned> replanned = replan.Take()) { ... }
//
// All calls are one thread's.
#pragma once

#include <future>
#include <optional>
#include <stop_token>
#include <vector>

#include "planner/replan.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

class BackgroundReplan {
 public:
  BackgroundReplan() = default;
  // Gives up what is under way, and waits for its end: until a trial has ended, a second or two at
  // most on a machine that does nothing else.
  ~BackgroundReplan();
  BackgroundReplan(const BackgroundReplan&) = delete;
  BackgroundReplan& operator=(const BackgroundReplan&) = delete;

  // As Replan takes them. Gives up what is under way, without waiting for its end.
  void Start(const Job& job, const wire::PlanAndModel& current, const wire::LayerTimes& measured);

  // What has come of it, once; nullopt if nothing is there yet, or it has failed.
  std::optional<Replanned> Take();

 private:
  void GiveUp();

  std::stop_source given_up_;  // of the one that is under way
  std::future<Replanned> replanned_;
  std::vector<std::future<Replanned>> left_;  // given up, and perhaps not at their end
};

}  // namespace poseidon
