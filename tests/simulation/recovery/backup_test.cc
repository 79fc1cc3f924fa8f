// Jobs whose servers update: nodes die, and they end as if none had, because a second server keeps
// what each of them keeps.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuickSeeds = 6;
constexpr uint64_t kSeeds = 1000;
constexpr uint64_t kSpareSeeds = 12;

using C = Communication;
constexpr std::array kPolicies = {C::ALL_PS, C::BYTES, C::ALL_ADAM};

SimulatedClusterOptions RandomJob(uint64_t seed) {
  return UpdatingAtServers(RecoveringTraining(seed), kPolicies[seed % kPolicies.size()]);
}

// Sees what the servers of a job send, and that none answers with values before the chunk's backup
// has them.
class AnswerWatch {
 public:
  // Lives as long as jobs of these options.
  void Observe(SimulatedClusterOptions& options) {
    // Only so that the filter is asked, which never says yes.
    options.network.faults.drop = 1;
    options.network.fault_filter = [this](const Envelope& envelope) {
      if (envelope.from.node.role == Role::kServer) See(envelope);
      return false;
    };
  }

  int64_t answers() const { return answers_; }
  int64_t replica_bytes() const { return replica_bytes_; }

 private:
  using Key = std::tuple<uint64_t, uint32_t, uint32_t>;  // epoch, bucket, chunk

  void See(const Envelope& envelope) {
    const Key key{envelope.epoch, envelope.bucket, envelope.chunk};
    switch (envelope.kind) {
      case MessageKind::kReplica:
      case MessageKind::kFactors:
        replica_bytes_ += static_cast<int64_t>(envelope.body.size());
        return;
      case MessageKind::kReplicated:
        confirmed_[key].insert(envelope.iteration);
        return;
      case MessageKind::kValues: {
        const auto [first, is_first] = first_.try_emplace(envelope.epoch, envelope.iteration);
        if (envelope.iteration <= first->second) return;
        ++answers_;
        EXPECT_TRUE(confirmed_[key].contains(envelope.iteration))
            << envelope.from.ToString() << " answers for iteration " << envelope.iteration
            << " what its backup has not";
        return;
      }
      default:
        return;
    }
  }

  std::map<Key, std::set<int64_t>> confirmed_;
  std::map<uint64_t, int64_t> first_;  // iteration, by epoch
  int64_t answers_ = 0;
  int64_t replica_bytes_ = 0;
};

void ExpectRecoveries(uint64_t begin, uint64_t end, int losses_a_job, bool scheduler = false) {
  int recoveries = 0;
  int64_t answers = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = RandomJob(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    std::vector<Loss> losses;
    if (scheduler) losses.push_back(faults.Draw(kTheScheduler));
    for (int i = 0; i < losses_a_job; ++i) losses.push_back(faults.Draw());
    AnswerWatch watch;
    watch.Observe(options);
    recoveries += ExpectSameAfter(options, undisturbed, losses);
    answers += watch.answers();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(recoveries, static_cast<int>(end - begin) / 5) << "the faults hit nothing";
  EXPECT_GT(answers, static_cast<int64_t>(end - begin)) << "no server has updated anything";
}

TEST(BackupTest, OneLossChangesNothing) { ExpectRecoveries(0, kQuickSeeds, 1); }
TEST(BackupTest, LossesDuringRecoveryChangeNothing) { ExpectRecoveries(0, kQuickSeeds, 4); }
TEST(BackupTest, LossesWithTheSchedulersChangeNothing) {
  ExpectRecoveries(0, kQuickSeeds / 3, 2, true);
}
TEST(BackupTest, SlowLossesChangeNothing) {
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 1);
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 4);
  ExpectRecoveries(kQuickSeeds / 3, SlowSeeds(kSeeds), 2, true);
}

void ExpectLossAtAnyEnvelope(bool pairs, int64_t stride) {
  for (const C::Policy policy : kPolicies) {
    SCOPED_TRACE(C::Policy_Name(policy));
    ExpectLossAtAnyEnvelope(UpdatingAtServers(TinyTrainings().front(), policy), pairs, stride);
    if (testing::Test::HasFailure()) return;
  }
}

// Kills the scheduler at every `stride`th envelope, alone and with a server a few envelopes later.
void ExpectSchedulersLossAtAnyEnvelope(int64_t stride) {
  int64_t offset = 0;
  for (const C::Policy policy : kPolicies) {
    SCOPED_TRACE(C::Policy_Name(policy));
    const SimulatedClusterOptions options = UpdatingAtServers(TinyTrainings().front(), policy);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    for (int64_t at = 1 + offset++ % stride; at <= envelopes; at += stride) {
      SCOPED_TRACE("envelope " + std::to_string(at));
      const LossAtEnvelope scheduler{kTheScheduler, at};
      const LossAtEnvelope server{{Role::kServer, static_cast<int>(at % 2)}, at + 1 + at % 97};
      TrainWithLosses(options, undisturbed.parameters, {scheduler});
      TrainWithLosses(options, undisturbed.parameters, {scheduler, server});
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(BackupTest, TheSchedulersLossAtAnyEnvelopeChangesNothing) {
  ExpectSchedulersLossAtAnyEnvelope(kQuickStride);
}

TEST(BackupTest, SlowSchedulersLossAtEveryEnvelopeChangesNothing) {
  ExpectSchedulersLossAtAnyEnvelope(1);
}

TEST(BackupTest, ALossAtAnyEnvelopeChangesNothing) { ExpectLossAtAnyEnvelope(false, kQuickStride); }

TEST(BackupTest, TwoLossesAtAnyEnvelopesChangeNothing) {
  ExpectLossAtAnyEnvelope(true, kQuickStride);
}

TEST(BackupTest, SlowLossesAtEveryEnvelopeChangeNothing) {
  ExpectLossAtAnyEnvelope(false, 1);
  ExpectLossAtAnyEnvelope(true, 1);
}

// All of a tiny job's parameters are at two servers.
TEST(BackupTest, TheLossOfBothServersEndsTheJob) {
  const SimulatedClusterOptions options = UpdatingAtServers(TinyTrainings().front(), C::ALL_PS);
  const Undisturbed undisturbed = TrainUndisturbed(options);
  const Time when = undisturbed.begun + (undisturbed.finished - undisturbed.begun) * 3 / 4;
  std::vector<Loss> losses;
  for (int rank = 0; rank < 2; ++rank) {
    losses.push_back({{Role::kServer, rank}, when, Seconds(0.05), /*supervised=*/true});
  }
  WatchedJob job(options);
  for (const Loss& loss : losses) Lose(loss, job);
  SimulatedCluster& cluster = job.cluster();
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  EXPECT_TRUE(LostAll(cluster, losses));
}

// A server dies for good, and one that has waited takes its place, on a machine of its own.
TEST(BackupTest, ASpareServerGetsWhatTheLostOneKept) {
  constexpr NodeId kSpare{Role::kServer, -1};
  int needed = 0;
  for (uint64_t seed = 0; seed < kSpareSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = RandomJob(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int servers = options.job.cluster().servers();
    const Loss loss =
        Faults(seed, options, undisturbed).Draw({Role::kServer, static_cast<int>(seed) % servers});
    options.job.mutable_recovery()->set_spare_servers(1);
    AddNode(kSpare, undisturbed.begun, options);
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    job.KillAt(loss.when, loss.node);
    EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
    for (size_t i = 0; i < cluster.nodes(); ++i) {
      const NodeRecord& node = cluster.node(i);
      if (node.killed) continue;
      ASSERT_TRUE(node.end) << node.id.ToString();
      EXPECT_EQ(node.end->exit_code(), 0) << node.id.ToString() << ": " << node.end->reason();
    }
    if (HasFailure()) return;
    for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
      EXPECT_EQ(ParametersOf(cluster, rank), undisturbed.parameters) << "worker " << rank;
    }
    needed += cluster.node(kSpare).epoch != 0;
  }
  EXPECT_GT(needed, static_cast<int>(kSpareSeeds) / 2);
}

// Without floats, as large clusters are simulated.
TEST(BackupTest, PhantomsRecoverToo) {
  for (const C::Policy policy : kPolicies) {
    SCOPED_TRACE(C::Policy_Name(policy));
    SimulatedClusterOptions options = UpdatingAtServers(TinyTrainings().front(), policy);
    options.work.arithmetic = {};
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    LossesAtEnvelopes job(options, {{{Role::kServer, 1}, envelopes / 2}});
    EXPECT_TRUE(job.Run()) << "it hangs";
    EXPECT_EQ(job.cluster().scheduler().recoveries.size(), 1u);
    EXPECT_EQ(job.cluster().node(kTheScheduler).end->exit_code(), 0);
  }
}

// In each iteration the sum of all gradients goes once to a backup, or all workers' factors do.
TEST(BackupTest, BackupsGetTheSumOfGradientsOnce) {
  for (const C::Policy policy : {C::ALL_PS, C::ALL_ADAM}) {
    SimulatedClusterOptions options = UpdatingAtServers(TinyTrainings().front(), policy);
    AnswerWatch watch;
    watch.Observe(options);
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    ASSERT_TRUE(cluster.Run(kHung));
    int64_t floats = 0;
    const Plan plan = LastPlan(cluster);
    for (const BucketPlan& bucket : plan.buckets()) {
      for (const Chunk& chunk : bucket.chunks()) {
        EXPECT_TRUE(chunk.has_backup());
        EXPECT_NE(chunk.backup(), chunk.server());
        if (bucket.scheme() != ADAM) floats += chunk.size();
      }
      if (bucket.scheme() != ADAM) continue;
      const InnerProductSpec& product =
          options.work.model.layers(bucket.first_layer()).inner_product();
      floats += plan.workers() * product.rows() * (product.outputs() + product.inputs());
    }
    EXPECT_EQ(watch.replica_bytes(), options.work.iterations * floats * 4);
  }
}

}  // namespace
}  // namespace poseidon
