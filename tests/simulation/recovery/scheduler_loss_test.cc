// The scheduler dies, also with other nodes or twice, and the job ends as if nobody had.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/recovery/recovery_case.h"

namespace poseidon {
namespace {

// Kills the scheduler at every `stride`th envelope, and with it what `others` says.
using OtherLosses = std::function<std::vector<LossAtEnvelope>(
    const SimulatedClusterOptions& options, int64_t envelope)>;

void ExpectSchedulerLossAtAnyEnvelope(int64_t stride, const OtherLosses& others) {
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    for (int64_t at = 1; at <= envelopes; at += stride) {
      SCOPED_TRACE("scheduler at envelope " + std::to_string(at));
      // Half of them are away for longer than it takes the nodes to notice.
      LossAtEnvelope loss{kTheScheduler, at};
      if (at % 2 == 0) loss.restart_after = Seconds(3);
      std::vector<LossAtEnvelope> losses = others(options, at);
      losses.insert(losses.begin(), loss);
      TrainWithLosses(options, undisturbed.parameters, losses);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SchedulerLossTest, TheSchedulersLossAtAnyEnvelopeChangesNothing) {
  ExpectSchedulerLossAtAnyEnvelope(1, [](auto&, int64_t) { return std::vector<LossAtEnvelope>(); });
}

NodeId OtherNode(const SimulatedClusterOptions& options, int64_t draw) {
  // The scheduler is the first.
  const size_t index = 1 + static_cast<size_t>(draw) % (options.layout.nodes.size() - 1);
  return options.layout.nodes[index].id;
}

TEST(SchedulerLossTest, TheSchedulersLossWithAnothersChangesNothing) {
  ExpectSchedulerLossAtAnyEnvelope(1, [](const auto& options, int64_t at) {
    const int64_t before = at % 3 == 0 ? -(1 + at % 31) : at % 13;
    return std::vector<LossAtEnvelope>{{OtherNode(options, at), std::max<int64_t>(1, at + before)}};
  });
}

// For every `stride`th envelope at which the scheduler dies: the next one dies at every
// `second_stride`th envelope that comes when it is there, and another node before or after it, if
// `with_another`.
void ExpectTwoSchedulerLosses(int64_t stride, int64_t second_stride, bool with_another) {
  int64_t offset = 0;
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    for (int64_t at = 1 + ++offset % stride; at <= envelopes; at += stride) {
      const LossAtEnvelope first{kTheScheduler, at};
      const int64_t since = TrainWithLosses(options, undisturbed.parameters, {first}).since_restart;
      for (int64_t second = 1 + at % second_stride; second <= since; second += second_stride) {
        SCOPED_TRACE("scheduler at envelope " + std::to_string(at) + " and " +
                     std::to_string(second) + " envelopes later");
        std::vector<LossAtEnvelope> losses{first, {.node = kTheScheduler, .envelope = second}};
        losses.back().since_restart = true;
        if (with_another) {
          losses.push_back({OtherNode(options, at + second), second + second % 17});
          losses.back().since_restart = true;
        }
        TrainWithLosses(options, undisturbed.parameters, losses);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(SchedulerLossTest, TwoSchedulersLossesChangeNothing) {
  ExpectTwoSchedulerLosses(41, 7, false);
}

TEST(SchedulerLossTest, TwoSchedulersLossesWithAnothersChangeNothing) {
  ExpectTwoSchedulerLosses(43, 11, true);
}

TEST(SchedulerLossTest, SlowSchedulersLossesChangeNothing) {
  ExpectTwoSchedulerLosses(1, 1, false);
  ExpectTwoSchedulerLosses(1, 1, true);
}

// The job is asked to end early, and the scheduler dies at any moment after that.
TEST(SchedulerLossTest, AStopOutlivesTheScheduler) {
  int stopped = 0;
  for (SimulatedClusterOptions options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    options.work.iterations += 20;
    options.work.model.set_iterations(options.work.iterations);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const Duration length = undisturbed.finished - undisturbed.begun;
    const Time asked = undisturbed.begun + length / 4;
    for (int part = 0; part < 40; ++part) {
      SCOPED_TRACE("part " + std::to_string(part));
      SimulatedCluster cluster(options);
      AskToStopAt(asked, cluster);
      const Time dies = asked + std::chrono::microseconds(1) + part * length / 400;
      cluster.KillAt(dies, kTheScheduler);
      cluster.RestartAt(dies + Seconds(0.5), kTheScheduler, false);
      ASSERT_TRUE(cluster.Run(kHung));
      ExpectAllEnded(cluster, ExitCode::kSuccess);
      // Who has not been asked to pause trains on while there is no scheduler, perhaps to the end.
      const int code = cluster.node(kTheScheduler).end->job_exit_code();
      stopped += code == static_cast<int>(ExitCode::kInterrupted) ? 1 : 0;
      EXPECT_TRUE(code != 0 ||
                  std::ssize(cluster.trainer(0).iterations) == options.work.iterations);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(stopped, 100);
}

// What the journal is good for: a scheduler that acts before it has written down what it does
// leaves jobs that its successor can't go on with.
TEST(SchedulerLossTest, WithoutTheJournalBeforeTheMessageJobsFail) {
  int failed = 0;
  for (SimulatedClusterOptions& options : TinyTrainings()) {
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    options.disk = {.delay = std::chrono::milliseconds(1), .lies = true};
    for (int64_t at = 1; at <= envelopes; at += 3) {
      LossesAtEnvelopes job(options, {{kTheScheduler, at}});
      bool same = job.Run();
      for (int rank = 0; same && rank < options.job.cluster().workers(); ++rank) {
        same = job.cluster().node({Role::kWorker, rank}).end->exit_code() == 0 &&
               ParametersOf(job.cluster(), rank) == undisturbed.parameters;
      }
      failed += same ? 0 : 1;
    }
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace poseidon
