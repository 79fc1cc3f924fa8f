// What makes recovery right is four safeguards. With one of them switched off, jobs must fail that
// end well with it: else the other tests would not notice if it were broken. (A fifth, that the
// scheduler writes down what it does before it does it, is in scheduler_loss_test.cc.)
//
// Nothing of the product is built for that. An actor around a worker's or a server's undoes what
// the safeguard does.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/sync/sync_lane.h"
#include "client/worker_control.h"
#include "server/server_control.h"
#include "server/shard_actor.h"
#include "simulation/simulated_trainer.h"
#include "tests/simulation/recovery/around.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "transport/membership/shared_messages.h"

namespace poseidon {
namespace {

using Wrap = decltype(SimOptions::wrap);

// Seeds of random jobs that are tried until one has failed.
constexpr uint64_t kMostSeeds = 60;

// Whether the job has ended as the undisturbed one: well, and with its parameters.
bool EndsAsUndisturbed(const SimulatedClusterOptions& options, const Undisturbed& undisturbed,
                       const std::vector<Loss>& losses, SimulatedCluster& cluster) {
  for (const Loss& loss : losses) {
    cluster.KillAt(loss.when, loss.node);
    cluster.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
  }
  if (!cluster.Run(kHung)) return false;
  const std::optional<wire::End>& end = cluster.node(kTheScheduler).end;
  if (!end || end->exit_code() != 0) return false;
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    if (ParametersOf(cluster, rank) != undisturbed.parameters) return false;
  }
  return true;
}

// The context of a simulated worker's present plan, by its process.
using ContextOf = std::function<const SyncContext*(SimNode)>;

ContextOf ContextsOf(const SimulatedClusterOptions& options,
                     const std::unique_ptr<SimulatedCluster>& cluster) {
  std::vector<NodeId> workers;
  for (const NodeSpec& node : options.layout.nodes) {
    if (node.id.role == Role::kWorker) workers.push_back(node.id);
  }
  return [workers, &cluster](SimNode process) -> const SyncContext* {
    for (const NodeId& id : workers) {
      if (cluster->process(id) == process) return cluster->context(id.rank);
    }
    return nullptr;
  };
}

// Says how actors are wrapped in a job whose contexts are these.
using Mutation = std::function<Wrap(const ContextOf&)>;

// Of random jobs, with the safeguard, all end well; without it some do not.
void ExpectNeeded(const std::function<SimulatedClusterOptions(uint64_t seed)>& job,
                  const std::function<std::vector<Loss>(Faults&)>& draw,
                  const Mutation& switch_off) {
  for (uint64_t seed = 0; seed < kMostSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = job(seed);
    if (options.job.cluster().workers() == 1) continue;  // nobody would have the parameters
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    const std::vector<Loss> losses = draw(faults);
    {
      SimulatedCluster cluster(options);
      if (!EndsAsUndisturbed(options, undisturbed, losses, cluster)) {
        ASSERT_TRUE(LostAll(cluster, losses)) << "it fails with the safeguard, too";
        continue;
      }
    }
    std::unique_ptr<SimulatedCluster> cluster;
    options.network.wrap = switch_off(ContextsOf(options, cluster));
    cluster = std::make_unique<SimulatedCluster>(options);
    if (!EndsAsUndisturbed(options, undisturbed, losses, *cluster)) {
      testing::Test::RecordProperty("failed_seed", std::to_string(seed));
      return;
    }
  }
  ADD_FAILURE() << "jobs end well without the safeguard";
}

std::vector<Loss> OneLoss(Faults& faults) { return {faults.Draw()}; }

// A worker's program that goes back, as far as its iteration is concerned, with the values as they
// are.
class KeepsNothing : public Around {
 public:
  KeepsNothing(std::unique_ptr<Actor> inner, std::function<const SyncContext*()> context)
      : Around(std::move(inner)), context_(std::move(context)) {}

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    const SyncContext* const context = context_();
    if (envelope.kind != MessageKind::kPlan || context == nullptr) {
      return inner().OnMessage(envelope, outbox);
    }
    const std::shared_ptr<const ModelMemory> memory = context->memory;
    const int buckets = context->plan.plan().buckets_size();
    std::vector<std::vector<float>> before;
    for (int bucket = 0; bucket < buckets; ++bucket) {
      const std::span<const float> values = memory->bucket(bucket).values;
      before.emplace_back(values.begin(), values.end());
    }
    inner().OnMessage(envelope, outbox);
    for (int bucket = 0; bucket < buckets; ++bucket) {
      std::ranges::copy(before[bucket], memory->bucket(bucket).values.begin());
    }
  }

 private:
  std::function<const SyncContext*()> context_;
};

TEST(MutationTest, WithoutTheCopyBeforeTheLastUpdateJobsFail) {
  ExpectNeeded(RecoveringTraining, OneLoss, [](const ContextOf& context) -> Wrap {
    return [context](SimNode node, int, std::unique_ptr<Actor> actor) -> std::unique_ptr<Actor> {
      if (dynamic_cast<SimulatedTrainer*>(actor.get()) == nullptr) return actor;
      return std::make_unique<KeepsNothing>(std::move(actor),
                                            [context, node] { return context(node); });
    };
  });
}

// A sum, or a factor, that goes to a backup.
bool IsReplica(const Envelope& envelope) {
  return envelope.kind == MessageKind::kReplica ||
         (envelope.kind == MessageKind::kFactors && envelope.from.node.role == Role::kServer);
}

// A server's lane that takes what it sends to a backup for received.
class AnswersAtOnce : public Around {
 public:
  using Around::Around;

 protected:
  void Sent(Outbox& outbox) override {
    // What is answered comes behind what is looked at.
    for (size_t i = 0; i < outbox.messages.size(); ++i) {
      const Envelope sent = outbox.messages[i];
      if (sent.to.node.role != Role::kServer) continue;
      if (sent.kind == MessageKind::kReplica) Confirm(sent, sent.chunk, outbox);
      if (sent.kind != MessageKind::kFactors) continue;
      // Of a layer, which these jobs cut into no more chunks; only after the last factor is it
      // heard.
      for (uint32_t chunk = 0; chunk < 100; ++chunk) Confirm(sent, chunk, outbox);
    }
  }

 private:
  void Confirm(Envelope sent, uint32_t chunk, Outbox& outbox) {
    sent.kind = MessageKind::kReplicated;
    sent.from = sent.to;
    sent.chunk = chunk;
    ++sent.iteration;
    sent.body = {};
    inner().OnMessage(sent, outbox);
  }
};

// A job whose servers update, and where what goes to backups takes its time.
SimulatedClusterOptions SlowToBackups(uint64_t seed, Communication::Policy policy) {
  SimulatedClusterOptions options = UpdatingAtServers(RecoveringTraining(seed), policy);
  options.network.seed = seed;
  options.network.faults = {.delay = 0.5, .max_delay = std::chrono::milliseconds(20)};
  options.network.fault_filter = IsReplica;
  return options;
}

void ExpectAcknowledgementNeeded(Communication::Policy policy) {
  const auto job = [policy](uint64_t seed) { return SlowToBackups(seed, policy); };
  ExpectNeeded(job, OneLoss, [](const ContextOf&) -> Wrap {
    return [](SimNode, int, std::unique_ptr<Actor> actor) -> std::unique_ptr<Actor> {
      if (dynamic_cast<ShardActor*>(actor.get()) == nullptr) return actor;
      return std::make_unique<AnswersAtOnce>(std::move(actor));
    };
  });
}

TEST(MutationTest, WithoutTheBackupsAcknowledgementJobsFail) {
  ExpectAcknowledgementNeeded(Communication::ALL_PS);
}
TEST(MutationTest, WithoutTheAcknowledgementOfFactorsJobsFail) {
  ExpectAcknowledgementNeeded(Communication::ALL_ADAM);
}

// Tells which plan a node's control lane has got last.
class TellsPlan : public Around {
 public:
  TellsPlan(std::unique_ptr<Actor> inner, std::function<void(int)> tell)
      : Around(std::move(inner)), tell_(std::move(tell)) {}

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.kind == MessageKind::kPlan) {
      tell_(ParsePlan(envelope.body, nullptr)->plan().number());
    }
    inner().OnMessage(envelope, outbox);
  }

 private:
  std::function<void(int)> tell_;
};

// A data lane that takes frames of every plan for its own's.
class KnowsNoEpoch : public Around {
 public:
  KnowsNoEpoch(std::unique_ptr<Actor> inner, uint64_t epoch)
      : Around(std::move(inner)), epoch_(epoch) {}

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    Envelope own = envelope;
    if (IsWireKind(own.kind)) own.epoch = epoch_;
    inner().OnMessage(own, outbox);
  }

 private:
  uint64_t epoch_;
};

// A job whose frames take so long that some of the plan that is given up come when the next one has
// begun.
SimulatedClusterOptions WithLateFrames(uint64_t seed) {
  SimulatedClusterOptions options = RecoveringTraining(seed);
  options.network.seed = seed;
  options.network.faults = {.delay = 0.3, .max_delay = std::chrono::milliseconds(40)};
  options.network.fault_filter = IsData;
  return options;
}

// Another process is there at once.
std::vector<Loss> QuickLoss(Faults& faults) {
  Loss loss = faults.Draw();
  loss.restart_after = std::chrono::microseconds(1);
  loss.supervised = true;
  return {loss};
}

TEST(MutationTest, WithoutTheEpochOfFramesJobsFail) {
  ExpectNeeded(WithLateFrames, QuickLoss, [](const ContextOf&) -> Wrap {
    return [plans = std::make_shared<std::map<SimNode, int>>()](
               SimNode node, int, std::unique_ptr<Actor> actor) -> std::unique_ptr<Actor> {
      Actor* const inner = actor.get();
      if (dynamic_cast<WorkerControl*>(inner) != nullptr ||
          dynamic_cast<ServerControl*>(inner) != nullptr) {
        return std::make_unique<TellsPlan>(std::move(actor),
                                           [plans, node](int plan) { (*plans)[node] = plan; });
      }
      if (dynamic_cast<SyncLane*>(inner) == nullptr &&
          dynamic_cast<ShardActor*>(inner) == nullptr) {
        return actor;
      }
      const uint64_t base = SimulatedClusterOptions().epoch;
      return std::make_unique<KnowsNoEpoch>(std::move(actor),
                                            base + static_cast<uint64_t>(plans->at(node)));
    };
  });
}

// A worker's program that has what the next plan starts with no longer, from when that plan comes
// until its start.
class ReleasesAtThePlan : public Around {
 public:
  ReleasesAtThePlan(std::unique_ptr<Actor> inner, std::function<const SyncContext*()> context)
      : Around(std::move(inner)), context_(std::move(context)) {}

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.kind == MessageKind::kStart && released_) {
      context_()->kept->AllArrived(context_()->start());
      released_ = false;
    }
    inner().OnMessage(envelope, outbox);
    const SyncContext* const context = context_();
    if (envelope.kind != MessageKind::kPlan || context == nullptr) return;
    if (context->plan.plan().holders().empty() || !context->publishes_start()) return;
    context->kept->Forget(context->start());
    released_ = true;
  }

 private:
  std::function<const SyncContext*()> context_;
  bool released_ = false;
};

// The second one while the first one's place is being filled.
std::vector<Loss> LossInRestoring(Faults& faults) {
  Loss first = faults.Draw();
  first.restart_after = std::chrono::milliseconds(5);
  first.supervised = true;
  Loss second = faults.Draw();
  second.when = first.when + first.restart_after +
                Duration(second.when.count() % Duration(std::chrono::milliseconds(30)).count());
  return {first, second};
}

TEST(MutationTest, WithStateReleasedBeforeTheStartJobsFail) {
  ExpectNeeded(RecoveringTraining, LossInRestoring, [](const ContextOf& context) -> Wrap {
    return [context](SimNode node, int, std::unique_ptr<Actor> actor) -> std::unique_ptr<Actor> {
      if (dynamic_cast<SimulatedTrainer*>(actor.get()) == nullptr) return actor;
      return std::make_unique<ReleasesAtThePlan>(std::move(actor),
                                                 [context, node] { return context(node); });
    };
  });
}

}  // namespace
}  // namespace poseidon
