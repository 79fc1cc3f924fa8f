// What tests of recovery have in common: jobs that recover, nodes that die at times or at
// envelopes, and that a job ends as if none had.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/simulation/recovery/watched_job.h"
#include "tests/simulation/training_case.h"

namespace poseidon {

// Virtual time after which a job of these tests hangs.
constexpr Time kHung = Seconds(1000);

constexpr NodeId kTheScheduler{Role::kScheduler, 0};

// A job that recovers, whose sums have the same bits in every run.
SimulatedClusterOptions RecoveringTraining(uint64_t seed);

// Every policy whose updates the workers make, as a job of a few envelopes.
std::vector<SimulatedClusterOptions> TinyTrainings();

// Likewise, but the servers update, of which there are two at least; under a policy that uses them.
SimulatedClusterOptions UpdatingAtServers(SimulatedClusterOptions options,
                                          Communication::Policy policy);

// Likewise, but those that are left go on without the lost.
SimulatedClusterOptions Shrinking(SimulatedClusterOptions options);

// One that comes at this time, with a machine of its own. Rank -1: any.
void AddNode(const NodeId& id, Time start, SimulatedClusterOptions& options);

// How many workers trained each iteration.
WorkersOf TenuresOf(const Plan& plan);
// A scheduler may have died before its program heard of its last plan, but not before it was
// written down.
Plan LastPlan(const SimulatedCluster& cluster);
// Whether the job ends by the plan that it was asked to go over to.
bool GoesBy(const wire::PlanAndModel& asked, const SimulatedCluster& cluster);
// The workers of the last plan have the same parameters, those of the serial training of as many
// workers as there were.
void ExpectTrained(const SimulatedCluster& cluster, const SimulatedClusterOptions& options);

struct Loss {
  NodeId node;
  Time when{};
  Duration restart_after{};
  bool supervised = false;
};

std::string ToString(const Loss& loss);
// The process is killed, and another one started.
void Lose(const Loss& loss, WatchedJob& job);

// From now on somebody looks for processes that have been given up, and starts others.
void Supervise(SimulatedCluster& cluster);

// What a job comes to when nothing happens to it.
struct Undisturbed {
  Parameters parameters;
  Time begun{};
  Time finished{};
};

Undisturbed TrainUndisturbed(const SimulatedClusterOptions& options);

// Whether every worker that had the parameters has died, or both servers that kept a chunk, and the
// job has ended for that.
bool LostAll(const SimulatedCluster& cluster, const std::vector<Loss>& losses);

// Trains with losses to the parameters of the undisturbed job. Returns how many recoveries there
// were.
int ExpectSameAfter(const SimulatedClusterOptions& options, const Undisturbed& expected,
                    const std::vector<Loss>& losses);

// Draws losses.
class Faults {
 public:
  Faults(uint64_t seed, const SimulatedClusterOptions& options, const Undisturbed& undisturbed)
      : random_(seed), options_(options), undisturbed_(undisturbed) {}

  Loss Draw() {
    NodeId node;
    do {
      node = options_.layout.nodes[random_() % options_.layout.nodes.size()].id;
    } while (node.role == Role::kScheduler);
    return Draw(node);
  }

  Loss Draw(const NodeId& node) {
    Loss loss;
    loss.node = node;
    // Also what comes after an earlier loss: its recovery, and the training that it has delayed.
    const Duration length = undisturbed_.finished - undisturbed_.begun + after_ * Seconds(2);
    loss.when =
        undisturbed_.begun + Duration(random_() % static_cast<uint64_t>(length.count() + 1));
    ++after_;
    loss.restart_after = Duration(random_() % static_cast<uint64_t>(Seconds(2).count()));
    loss.supervised = random_() % 2 == 0;
    return loss;
  }

 private:
  std::mt19937_64 random_;
  const SimulatedClusterOptions& options_;
  Undisturbed undisturbed_;
  int after_ = 0;  // losses drawn
};

// Dies when the job's envelope of this number arrives anywhere, within nodes, too.
struct LossAtEnvelope {
  NodeId node;
  int64_t envelope = 0;
  Duration restart_after = Seconds(0.05);
  // Counted from the moment at which the first of the lost is started again.
  bool since_restart = false;
  bool restarts = true;
};

// Runs a job in which nodes die at envelopes.
class LossesAtEnvelopes {
 public:
  LossesAtEnvelopes(SimulatedClusterOptions options, std::vector<LossAtEnvelope> losses)
      : losses_(std::move(losses)), job_(Counting(std::move(options))) {}

  const SimulatedCluster& cluster() const { return job_.cluster(); }
  bool Run() { return job_.cluster().Run(kHung); }
  int64_t envelopes() const { return envelopes_; }
  int64_t envelopes_since_restart() const { return since_restart_; }

 private:
  SimulatedClusterOptions Counting(SimulatedClusterOptions options) {
    options.network.processing = [this](const Envelope&) {
      Count();
      return Duration::zero();
    };
    return options;
  }

  void Count() {
    const Time now = cluster().runtime().now();
    ++envelopes_;
    if (restarted_ && now >= *restarted_) ++since_restart_;
    for (const LossAtEnvelope& loss : losses_) {
      if (loss.envelope != (loss.since_restart ? since_restart_ : envelopes_)) continue;
      if (!restarted_) restarted_ = now + loss.restart_after;
      job_.KillAt(now, loss.node);
      if (loss.restarts) job_.RestartAt(now + loss.restart_after, loss.node, true);
    }
  }

  std::vector<LossAtEnvelope> losses_;
  int64_t envelopes_ = 0;
  int64_t since_restart_ = 0;
  std::optional<Time> restarted_;  // when the first of the lost is
  WatchedJob job_;
};

struct Envelopes {
  int64_t all = 0;
  int64_t since_restart = 0;
};

// Trains with losses to these parameters; any will do if there are none.
Envelopes TrainWithLosses(const SimulatedClusterOptions& options, const Parameters& expected,
                          const std::vector<LossAtEnvelope>& losses);

// In quick runs a node dies at every so many-th envelope, each at others.
inline constexpr int64_t kQuickStride = 5;

// Kills every server and worker at every `stride`th envelope of a tiny job; with `pairs` another
// node a few envelopes later.
void ExpectLossAtAnyEnvelope(const SimulatedClusterOptions& options, bool pairs, int64_t stride);

}  // namespace poseidon
