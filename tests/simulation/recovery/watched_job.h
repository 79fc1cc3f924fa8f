// WatchedJob: a simulated job that recovers, whose actors are watched: what recovery promises must
// hold at every moment, not only of what the job comes to. The numbers are those of
// docs/recovery.md, "What always holds".
//
//   1  a frame of another plan changes nothing and answers nothing
//   2  what survivors hold is of an iteration t or t + 1
//   3  nobody has sent anything beyond t + 1 when the job goes back to t
//   4  each gradient that counts was computed once: of each iteration one by each place of the plan
//      that trained it last, and none besides; places and iterations tile the samples
//   5  a plan gives each float one owner, and each chunk that servers update a backup elsewhere; no
//      server answers with what the backup does not have
//   6  training starts when all are ready, and that it starts is written down
//   8  a recovery does at most two iterations again
//   9  after the last fault an iteration is done, or the job ends, within a bound that its
//   deadlines
//      give
//
// The seventh, the parameters, is what each test compares itself.
//
//   WatchedJob job(options);
//   job.KillAt(when, node);
//   job.RestartAt(when + later, node, true);
//   EXPECT_TRUE(job.cluster().Run(kHung));
//   // ... and what is promised at the end is checked when the job is gone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "simulation/simulated_cluster.h"
#include "transport/membership/shared_messages.h"

namespace poseidon {

class WatchedJob {
 public:
  explicit WatchedJob(SimulatedClusterOptions options);
  // Expects what is to hold at the end, of a job that has run to it.
  ~WatchedJob();
  WatchedJob(const WatchedJob&) = delete;
  WatchedJob& operator=(const WatchedJob&) = delete;

  SimulatedCluster& cluster() { return *cluster_; }
  const SimulatedCluster& cluster() const { return *cluster_; }

  // The cluster's, known as faults.
  void KillAt(Time when, const NodeId& id);
  void RestartAt(Time when, const NodeId& id, bool supervised);
  // Something else is wrong until then.
  void DisturbedUntil(Time when) { last_fault_ = std::max(last_fault_, when); }
  // Of a job that has ended: how long after the last fault a worker has done an iteration, or the
  // job has ended.
  Duration IdleAfterFaults() const;

 private:
  class Watch;
  class LaneWatch;
  class ControlWatch;
  class SchedulerWatch;
  class TrainerWatch;

  using ActorWrap = std::function<std::unique_ptr<Actor>(SimNode, int, std::unique_ptr<Actor>)>;
  using ChunkOfPlan = std::tuple<uint64_t, uint32_t, uint32_t>;  // epoch, bucket, chunk

  struct PlanRecord {
    Plan plan;
    std::set<NodeId> ready;
    // The last iteration of any data frame under it.
    std::optional<int64_t> furthest;
    // By iteration: how often each layer's gradient was computed, by place and layer.
    std::map<int64_t, std::vector<int>> gradients;
  };

  SimulatedClusterOptions Watched(SimulatedClusterOptions options);
  // Puts a watch around `around`, if it is given, around the actor.
  std::unique_ptr<Actor> Wrap(SimNode node, int lane, const ActorWrap& around,
                              std::unique_ptr<Actor> actor);
  uint64_t EpochOf(int plan) const { return base_ + static_cast<uint64_t>(plan); }
  PlanRecord* PlanOf(uint64_t epoch);

  void OnPlan(const Envelope& envelope);
  void ExpectPlanMakesSense(const wire::PlanAndModel& plan) const;
  void OnHoldings(const Envelope& envelope);
  void OnStart(int plan);
  void OnDataSent(const Envelope& envelope);
  void ExpectGradientsOnce() const;
  void ExpectNothingBeyond() const;
  void ExpectGoesOn() const;

  uint64_t base_;
  int64_t iterations_;
  int layers_;
  Duration patience_;       // see 9
  Duration join_deadline_;  // likewise, of a job that has not begun
  bool watches_ = true;
  std::map<int, PlanRecord> plans_;                        // by number
  std::map<SimNode, int> plan_of_;                         // that its control lane has got last
  std::map<uint32_t, std::pair<int64_t, int64_t>> holds_;  // by number: oldest, newest version
  std::map<ChunkOfPlan, int64_t> backed_up_;               // which version the backup has
  std::optional<int> computing_;  // plan of the worker whose program is called now
  bool computes_ = false;         // and not only with phantoms
  Time last_fault_{};
  std::vector<NodeId> asked_;  // who the processes asked to be
  SharedMessages parsed_;
  std::unique_ptr<SimulatedCluster> cluster_;  // its actors know the rest
};

}  // namespace poseidon
