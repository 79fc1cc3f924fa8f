// PlanSearch: policy TIME's search for the plan with the shortest predicted iteration
// (planner/time_planner.h says among which).
//
// It begins with the plans of the other policies, goes on with families of plans in the sizes that
// are best by estimate, then in others, and with combinations of schemes for the largest layers,
// and improves the best plan step by step, then the best of each other kind, for what is a little
// worse may become better than what is as good as its likes can be. How long it goes on is counted
// in messages of what is predicted, and each of these stages has its share, which begins anew with
// every plan that is clearly better. So it is deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "planner/grid_choice.h"
#include "planner/plan_candidates.h"
#include "planner/predictor.h"
#include "planner/time_planner.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// How much longer an iteration may take for fewer messages. Each costs processor time, some 0.1 ms
// of all who have to do with it, which predictions take from nobody else: a lane has a core of its
// own there. Where four workers shared two cores, a plan with a fifth of the messages was predicted
// to take 0.5% more, and took 16% less (docs/measurements/pytorch.md).
inline constexpr double kWorthMessages = 1.005;

// What messages that go first come, first served must save, where nothing is tried: many workers
// that each wait for all others drift apart, which predictions, of one worker or sixteen, do not
// see. With 64 workers such plans took 13% to 53% longer than predicted, and plans by priority what
// was predicted (docs/measurements/planner.md).
inline constexpr double kWorthFifoUntried = 0.85;
// That, or 1 for a plan that is predicted with all its workers.
double WorthFifoUntried(const Plan& fifo, const ClusterModel& cluster);

// An exchange that makes an iteration longer by less than this is as good as hidden.
inline constexpr double kAsGoodAsHidden = 1.0005;

class PlanSearch {
 public:
  struct Options {
    bool all_kinds = false;  // of each kind a plan is kept, however slow it is predicted to be
    bool is_tried = false;   // what is found will be: messages are spared
    std::stop_token stop;    // when nobody wants to know any more what is found
  };

  // By kind, which is the same for plans with the same schemes in the same order of messages: the
  // best one, and its seconds.
  using Rivals = std::map<std::string, std::pair<double, Plan>>;

  // `predictor` outlives this, and is nobody else's meanwhile.
  PlanSearch(Predictor& predictor, const Communication& communication, const Options& options);

  // Once, before what follows is asked.
  void Run();

  // What was found: its predicted time, whether it hides all exchanges, and itself.
  double seconds() const { return seconds_; }
  bool hidden() const;
  Plan plan() const { return Build(best_); }
  // What to take where nothing can be tried, and its predicted time.
  Plan untried() const { return Build(untried_); }
  double untried_seconds() const { return untried_seconds_; }
  Rivals rivals() const;
  // Those of the other policies, with all_kinds.
  const std::vector<Plan>& policies() const { return policies_; }
  // Of this search, without trials.
  SearchReport report() const;

 private:
  using Estimated = std::pair<double, PlanCandidate>;

  // Of a family, in one size.
  struct FamilyMember {
    double estimate = 0;      // seconds
    int64_t messages = 0;     // of an iteration, as predictions go through them
    bool own_chunks = false;  // of the size that the job names, as other policies' are
    PlanCandidate candidate;
  };

  Plan Build(const PlanCandidate& candidate) const;
  double Estimate(const PlanCandidate& candidate) const;
  // Predicted seconds; nullopt if the candidate was predicted before, can't take less than `limit`,
  // or has too many messages, which limits the stage.
  std::optional<double> Predict(const PlanCandidate& candidate, int64_t most_messages,
                                double limit);
  // True if the candidate is the best now, which takes less than `worth` of the iteration before.
  bool Take(const PlanCandidate& candidate, double seconds, double worth);
  // Predicts it and takes it, if it is better.
  bool Try(const PlanCandidate& candidate, int64_t most_messages, double worth = 1);
  // The best by estimate first, as long as the search has predicted less than `most` messages.
  void TryInOrder(std::vector<Estimated>& candidates, int64_t most);
  // For a trial, which may see it otherwise.
  void Keep(const std::string& kind, const PlanCandidate& candidate, double seconds);
  bool IsStopped() const { return options_.stop.stop_requested(); }
  bool GoesOn() const { return !hidden() && !IsStopped(); }
  // Asked by who has something left to predict: if it may not, the stage is limited.
  bool MayGoOn(int64_t most);
  // How many messages there will be when a stage ends that may have so many.
  int64_t BeginStage(const char* name, int64_t most) {
    stage_name_ = name;
    stage_ = messages_;
    return messages_ + most;
  }
  // Whatever they cost: to be at least as good is promised. At least one, when it is stopped.
  void TryPolicies();
  // As it is, and with a bucket for each layer.
  void KeepPolicy(const PlanCandidate& candidate, Communication communication);
  // Each family with the sizes that are best by estimate, the best family first.
  void TryFamilies(int64_t most);
  // Of all families those sizes that may be better than what was found, as long as they cost
  // little: estimates know nothing of messages that wait for each other, and so little of sizes.
  // First in the job's own chunks: these are what the other policies make with any size of buckets.
  void TrySizes(int64_t most);
  void TryCombinations(int64_t most);
  // One change after another that is predicted to help, from what takes so many seconds on.
  void Improve(PlanCandidate candidate, double seconds, int64_t most);
  void ImproveRivals(int64_t most);
  // Of the plans that take hardly longer the one with the fewest messages. Of many that are
  // predicted to be alike, some are better than it seems and others worse, so this is for those
  // that are tried.
  void SpareMessages();
  // A codec costs precision, so it stays only where time depends on it.
  void DropNeedlessCodecs();
  // The best, but first come, first served.
  void TryFifo();

  // Of a torus the grid that is best by estimate, which knows little of workers that wait for each
  // other in pairs; and the job's own, or as square as can be, with rings and with halving and
  // doubling along all dimensions. Else one that is empty.
  std::vector<Grid> GridsOf(const PlanCandidate& candidate) const;
  void AddGrids(const PlanCandidate& candidate, std::vector<PlanCandidate>& neighbors) const;
  // One pair of neighbors after another together, wherever that is no slower by estimate.
  PlanCandidate Merged(const PlanCandidate& candidate) const;
  // Whether it has a codec and the best has none.
  bool AddsCodec(const PlanCandidate& candidate) const;

  Options options_;
  Predictor& predictor_;
  const InformationBook& book_;
  const Communication communication_;
  PlanCandidates candidates_;
  std::vector<Grid> grids_;             // that tori may have
  std::vector<FamilyMember> families_;  // in all sizes
  std::set<std::string> tried_;
  // Of predictions after those of the policies: of all, of those that did not help, and of these
  // when the stage began.
  int64_t all_messages_ = 0;
  int64_t messages_ = 0;
  int64_t stage_ = 0;
  std::string stage_name_;
  std::set<std::string> limited_stages_;
  int64_t predicted_ = 0;                    // plans
  std::map<std::string, Estimated> rivals_;  // by kind, as predicted
  std::vector<Plan> policies_;
  PlanCandidate best_;
  double seconds_;  // of the best
  double least_;    // before messages were spared
  PlanCandidate untried_;
  double untried_seconds_;
};

}  // namespace poseidon
