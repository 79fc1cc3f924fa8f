// BackgroundReplan: replanning with trials (planner/replan.h, simulation/plan_trial.h) in a thread
// of its own. It takes seconds of a core, in which whoever has asked for it goes on with what
// comes; who trains on the same machine comes before it. A search that fails, as for lack of memory
// or threads, makes no plan, and the log has a warning that says why.
//
//   BackgroundReplan replan;
//   replan.Start(job, current, measured);
//   ...
//   if (const std::optional<Replanned> replanned = replan.Take()) { ... }
//   ...
//   replan.PlanChanged(next);  // a plan is in force: that one, or another
//
// All calls are one thread's.
#pragma once

#include <cstdint>
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

  // As Replan takes them; `measured` is of the workers of `current`. Gives up what is under way,
  // without waiting for its end.
  void Start(const Job& job, const wire::PlanAndModel& current, const wire::LayerTimes& measured);

  // What has come of it, once; nullopt if nothing is there yet, or it has failed.
  std::optional<Replanned> Take();

  // `current` is the plan in force now. If it is not the one that the search has come to, which
  // then nobody has gone over to, or of another layout than the search is for, it begins anew with
  // the same times. Where it has found that no other plan pays it does so for another number of
  // workers or servers only, whose plan nobody has made by these times. Returns whether a plan that
  // it has come to was passed over.
  bool PlanChanged(const wire::PlanAndModel& current);

  // Whether there is something to Take, or will be.
  bool searching() const { return replanned_.valid(); }

 private:
  struct Asked {
    Job job;
    wire::LayerTimes measured;
    double factor = 1;  // MeanComputeFactor of the workers that have measured
    // Of the plan that was in force.
    int32_t layout = 0;
    int32_t workers = 0;
    int32_t servers = 0;
    std::optional<Plan> found;  // that is much better, once it has been taken
    bool stays = false;         // no other plan pays
  };

  // Whether what was asked is to be asked again of `plan`, which is in force now and not the one
  // that was found.
  static bool IsOpen(const Asked& asked, const Plan& plan);

  // Asks that of the plan in force.
  void Ask(const Job& job, const wire::PlanAndModel& current, const wire::LayerTimes& measured,
           double factor);
  void GiveUp();

  std::optional<Asked> asked_;  // until the plan that was found is in force
  std::stop_source given_up_;   // of the one that is under way
  std::future<Replanned> replanned_;
  std::vector<std::future<Replanned>> left_;  // given up, and perhaps not at their end
};

}  // namespace poseidon
