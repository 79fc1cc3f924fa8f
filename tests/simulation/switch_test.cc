// A job goes over to another plan while it trains, and nothing of its training is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "tests/simulation/training_case.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuickSeeds = 25;
constexpr uint64_t kSeeds = 200;
constexpr NodeId kScheduler{Role::kScheduler, 0};

struct Request {
  Time when{};
  wire::PlanAndModel plan;
};

struct Result {
  Parameters parameters;  // worker 0's; the others' were the same bits
  int switches = 0;
  int64_t dropped_frames = 0;
  Time begun{};
  Time finished{};
};

Result Train(const SimulatedClusterOptions& options, const std::vector<Request>& requests) {
  SimulatedCluster cluster(options);
  for (const Request& request : requests) AskAt(request.when, request.plan, cluster);
  EXPECT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  if (testing::Test::HasFailure()) return {};
  Result result;
  result.parameters = ParametersOf(cluster, 0);
  result.switches = cluster.scheduler().plan->plan().number();
  result.begun = cluster.trainer(0).iterations.front().begin;
  result.finished = cluster.trainer(0).finished;
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(ParametersOf(cluster, rank), result.parameters) << "worker " << rank;
    EXPECT_EQ(cluster.context(rank)->plan.plan().number(), result.switches);
    EXPECT_EQ(cluster.trainer(rank).iterations.size(),
              static_cast<size_t>(options.work.iterations));
    result.dropped_frames += cluster.scheduler().reports.at(rank).dropped_frames();
  }
  return result;
}

// Random moments of a training that has taken as long as `plain`.
class Moments {
 public:
  Moments(uint64_t seed, const Result& plain) : random_(seed), plain_(plain) {}
  Time Draw() {
    const Duration length = std::max<Duration>(plain_.finished - plain_.begun, Duration(1));
    return plain_.begun + Duration(random_() % static_cast<uint64_t>(length.count()));
  }
  uint64_t DrawSeed() { return random_(); }

 private:
  std::mt19937_64 random_;
  Result plain_;
};

SimulatedClusterOptions LongRandomTraining(uint64_t seed) {
  SimulatedClusterOptions options = RandomTraining(seed);
  options.work.iterations += 3 + static_cast<int64_t>(seed % 12);
  return options;
}

void AddDisorder(uint64_t seed, SimulatedClusterOptions& options) {
  options.network.seed = seed;
  options.network.faults = {
      .drop = 0, .duplicate = 0.1, .delay = 0.3, .max_delay = std::chrono::milliseconds(2)};
  // Sockets keep the order of control frames and lose none.
  options.network.fault_filter = IsData;
}

// The scheduler is far away: iterations pass while workers agree.
void DelayAgreement(uint64_t seed, SimulatedClusterOptions& options) {
  options.network.seed = seed;
  options.network.faults = {
      .drop = 0, .duplicate = 0, .delay = 0.7, .max_delay = std::chrono::milliseconds(10)};
  options.network.fault_filter = [](const Envelope& envelope) {
    return envelope.kind == MessageKind::kPauseRequest ||
           envelope.kind == MessageKind::kPauseOffer || envelope.kind == MessageKind::kPauseAt;
  };
}

// Another plan is asked for while a training that has not said how long it will be comes to its
// end: who is told late has finished, and another one waits to be told where to pause.
void ExpectEnd(uint64_t begin, uint64_t end) {
  uint64_t switches = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = LongRandomTraining(seed);
    options.work.tells_iterations = false;
    const Result plain = Train(options, {});
    Moments moments(seed, plain);
    DelayAgreement(seed, options);
    const Result result = Train(options, {{moments.Draw(), RandomPlan(options, seed)}});
    switches += static_cast<uint64_t>(result.switches);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(switches, 0);
  EXPECT_LT(switches, end - begin);
}

TEST(SwitchTest, ATrainingMayEndWhileAnotherPlanIsAgreedOn) { ExpectEnd(0, kQuickSeeds); }
TEST(SwitchTest, SlowATrainingMayEndWhileAnotherPlanIsAgreedOn) {
  ExpectEnd(kQuickSeeds, 10 * kSeeds);
}

void ExpectSerialTraining(uint64_t begin, uint64_t end) {
  uint64_t switches = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = LongRandomTraining(seed);
    if (seed % 2 == 1) AddDisorder(seed, options);
    if (seed % 4 == 2) DelayAgreement(seed, options);
    const int workers = options.job.cluster().workers();
    const Parameters expected = TrainSerially(options.work, workers);
    const Result plain = Train(options, {});
    Moments moments(seed, plain);
    std::vector<Request> requests;
    for (uint64_t request = 0; request <= seed % 3; ++request) {
      requests.push_back({moments.Draw(), RandomPlan(options, moments.DrawSeed())});
    }
    const Result result = Train(options, requests);
    EXPECT_LE(Difference(result.parameters, expected), RoundingBound(options.work, workers));
    if (seed % 2 == 0) {
      EXPECT_EQ(result.dropped_frames, 0);
    }
    switches += static_cast<uint64_t>(result.switches);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(switches, (end - begin) / 2);
}

TEST(SwitchTest, TrainingEqualsSerialTrainingWhateverIsSwitchedWhen) {
  ExpectSerialTraining(0, kQuickSeeds);
}
TEST(SwitchTest, SlowTrainingEqualsSerialTrainingWhateverIsSwitchedWhen) {
  ExpectSerialTraining(kQuickSeeds, kSeeds);
}

// PS on other servers and lanes in other chunks: the same sums in the same order.
wire::PlanAndModel OtherServers(const SimulatedClusterOptions& options, int64_t chunk_floats,
                                bool update_at_workers) {
  Communication communication = options.job.communication();
  communication.set_policy(Communication::ALL_PS);
  communication.set_kv_pair_bytes(4 * chunk_floats);
  communication.set_update_at(update_at_workers ? Communication::WORKERS : Communication::SERVERS);
  const InformationBook book(options.work.model, options.job.cluster().workers(),
                             options.job.cluster().servers());
  wire::PlanAndModel plan;
  *plan.mutable_plan() = MakePlan(book, communication);
  *plan.mutable_model() = options.work.model;
  return plan;
}

TEST(SwitchTest, EveryUpdateRuleComesToTheBitsOfATrainingWithoutASwitch) {
  for (const char* type : {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}) {
    SCOPED_TRACE(type);
    SimulatedClusterOptions options = SmallTraining(
        4, 3, {DenseLayer("a", 50), DenseLayer("b", 7), InnerProductLayer("c", 6, 5, 2)}, 20,
        std::chrono::microseconds(100));
    options.job.mutable_communication()->set_policy(Communication::ALL_PS);
    options.job.mutable_communication()->set_lanes(2);
    UpdateRuleSpec& rule = *options.work.model.mutable_update_rule();
    rule.set_type(type);
    const std::string name = type;
    if (name != "AdaGrad" && name != "RMSProp") rule.set_momentum(0.9F);
    const Result plain = Train(options, {});
    const Duration third = (plain.finished - plain.begun) / 3;
    // Servers to servers, to workers, and back.
    const Result result =
        Train(options, {{plain.begun + third / 2, OtherServers(options, 3, false)},
                        {plain.begun + third, OtherServers(options, 9, true)},
                        {plain.begun + 2 * third, OtherServers(options, 5, false)}});
    EXPECT_EQ(result.switches, 3);
    EXPECT_EQ(result.parameters, plain.parameters);
  }
}

// Gradients that do not depend on the parameters, so that it does not matter when they are applied.
Arithmetic IndependentGradients(const ModelSpec& model) {
  Arithmetic arithmetic = MakeArithmetic(model);
  const auto gradient = arithmetic.gradient;
  arithmetic.gradient = [gradient](int rank, int64_t iteration, int layer,
                                   std::span<const float> values, const GradientBuffers& buffers) {
    gradient(rank, iteration, layer, std::vector<float>(values.size(), 1.0F), buffers);
  };
  return arithmetic;
}

TEST(SwitchTest, WhatACodecHasNotSentIsSentUnderTheNextPlan) {
  for (const WireCodec codec : {ONE_BIT, TOP_K, INT8}) {
    SCOPED_TRACE(WireCodec_Name(codec));
    SimulatedClusterOptions options =
        SmallTraining(3, 2, {DenseLayer("a", 50), InnerProductLayer("b", 6, 5, 2)}, 12,
                      std::chrono::microseconds(100));
    Communication& communication = *options.job.mutable_communication();
    communication.set_policy(Communication::ALL_PS);
    communication.set_codec(codec);
    communication.set_top_k_share(0.1);
    options.work.arithmetic = IndependentGradients(options.work.model);
    const Parameters expected = TrainSerially(options.work, options.job.cluster().workers());
    const Result plain = Train(options, {});
    const double bound = RoundingBound(options.work, 3);
    EXPECT_GT(Difference(plain.parameters, expected), 10 * bound);  // int8 loses least, 50 times it
    // Under SFB nothing can be added to a gradient, so there it is kept.
    SimulatedClusterOptions dense = options;
    dense.job.mutable_communication()->set_codec(FP32);
    wire::PlanAndModel factors = OtherServers(dense, 7, true);
    const InformationBook book(options.work.model, 3, 2);
    *factors.mutable_plan() = MakePlan(
        book, dense.job.communication(),
        {{.first_layer = 0, .layer_count = 1, .scheme = RING, .codec = FP32, .chunk_floats = 20},
         {.first_layer = 1, .layer_count = 1, .scheme = SFB, .codec = FP32, .chunk_floats = 20}});
    const Duration third = (plain.finished - plain.begun) / 3;
    const Result result = Train(
        options,
        {{plain.begun + third, factors}, {plain.begun + 2 * third, OtherServers(dense, 7, false)}});
    EXPECT_EQ(result.switches, 2);
    EXPECT_LE(Difference(result.parameters, expected), bound);
  }
}

void ExpectSwitchesThatComeTooLateChangeNothing(uint64_t begin, uint64_t end) {
  uint64_t switched = 0;
  uint64_t too_late = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = LongRandomTraining(seed);
    const int workers = options.job.cluster().workers();
    const Parameters expected = TrainSerially(options.work, workers);
    const double bound = RoundingBound(options.work, workers);
    const Result plain = Train(options, {});
    const Duration iteration =
        (plain.finished - plain.begun) / static_cast<int>(options.work.iterations);
    for (int quarters = 0; quarters < 16; ++quarters) {
      const Result result = Train(
          options, {{plain.finished - quarters * iteration / 4, RandomPlan(options, seed + 1000)}});
      EXPECT_LE(Difference(result.parameters, expected), bound);
      ++(result.switches > 0 ? switched : too_late);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(switched, 4 * (end - begin));
  EXPECT_GT(too_late, 4 * (end - begin));
}

TEST(SwitchTest, ASwitchThatComesTooLateChangesNothing) {
  ExpectSwitchesThatComeTooLateChangeNothing(0, 4);
}
TEST(SwitchTest, SlowASwitchThatComesTooLateChangesNothing) {
  ExpectSwitchesThatComeTooLateChangeNothing(4, 12);
}

TEST(SwitchTest, PhantomsTakeTheSameTime) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = LongRandomTraining(seed);
    const Result plain = Train(options, {});
    const std::vector<Request> requests = {
        {plain.begun + (plain.finished - plain.begun) / 3, RandomPlan(options, seed)}};
    const Result real = Train(options, requests);
    options.work.arithmetic = {};
    SimulatedCluster cluster(options);
    AskAt(requests[0].when, requests[0].plan, cluster);
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    EXPECT_EQ(cluster.trainer(0).finished, real.finished);
    EXPECT_EQ(cluster.scheduler().plan->plan().number(), real.switches);
  }
}

TEST(SwitchTest, ReportsCountTheBucketsOfEachPlan) {
  const SimulatedClusterOptions options = MixedTraining(20, std::chrono::microseconds(100));
  const Result plain = Train(options, {});
  SimulatedCluster cluster(options);
  const wire::PlanAndModel next = OtherServers(options, 5, true);
  AskAt(plain.begun + (plain.finished - plain.begun) / 2, next, cluster);
  ASSERT_TRUE(cluster.Run(kForever));
  ASSERT_EQ(cluster.scheduler().plan->plan().number(), 1);
  const int64_t start = cluster.scheduler().plan->plan().start_iteration();
  const wire::WorkerReport& report = cluster.scheduler().reports.at(1);
  ASSERT_EQ(report.buckets_size(), 6);
  for (int bucket = 0; bucket < 6; ++bucket) {
    const wire::BucketTraffic& traffic = report.buckets(bucket);
    EXPECT_EQ(traffic.plan(), bucket / 3);
    EXPECT_EQ(traffic.exchanges(), (bucket < 3 ? start : 20 - start) - 1);
    EXPECT_GT(traffic.exchange_seconds(), 0);
  }
  // 40 floats a gradient, and as many a sum.
  EXPECT_EQ(report.buckets(0).bytes_sent(), start * 160);
  EXPECT_EQ(report.buckets(3).bytes_sent(), (20 - start) * 160);
  EXPECT_EQ(report.buckets(3).bytes_received(), (20 - start) * 160);
}

// Each node dies in each step of a switch: when the step's first frame leaves, or a moment later.
// Everybody knows of it, nobody waits for ever.
TEST(SwitchTest, LossOfANodeDuringASwitchIsToldToAll) {
  std::mt19937_64 random(1);
  const Time asked = Seconds(0.5);
  for (const MessageKind step :
       {MessageKind::kPauseRequest, MessageKind::kPauseOffer, MessageKind::kPauseAt,
        MessageKind::kFetchOptimizerState, MessageKind::kOptimizerState, MessageKind::kPaused,
        MessageKind::kPlan, MessageKind::kReady, MessageKind::kStart, MessageKind::kInitialValues,
        MessageKind::kInitialOptimizerState}) {
    SimulatedClusterOptions options = MixedTraining(100000, std::chrono::milliseconds(2));
    // Slow enough that frames of one step are under way for a while.
    for (NicSpec& nic : options.layout.machines) nic.goodput_bytes_per_second = 1e6;
    options.job.mutable_communication()->set_heartbeat_interval_seconds(0.05);
    options.job.mutable_communication()->set_heartbeat_deadline_seconds(0.2);
    options.network.faults.drop = 1;
    for (size_t run = 0; run < 2 * options.layout.nodes.size(); ++run) {
      const NodeId victim = options.layout.nodes[run / 2].id;
      SCOPED_TRACE(KindName(step) + ", " + victim.ToString());
      SimulatedCluster* watched = nullptr;
      bool killed = false;
      options.network.fault_filter = [&](const Envelope& envelope) {
        const Time now = watched->runtime().now();
        if (envelope.kind == step && now >= asked && !killed) {
          killed = true;
          watched->KillAt(now + Duration(run % 2 * (random() % Seconds(0.001).count())), victim);
        }
        return false;
      };
      SimulatedCluster cluster(options);
      watched = &cluster;
      AskAt(asked, RandomPlan(options, 7 + run % 2), cluster);
      ASSERT_TRUE(cluster.Run(asked + Seconds(5)));
      EXPECT_TRUE(killed);
      ExpectAllEnded(cluster, ExitCode::kPeerLost);
      if (HasFailure()) return;
    }
  }
}

// From the first frame of a kind on nothing of a worker's comes to the scheduler until its
// connection is lost. Its heartbeats have another one.
TEST(SwitchTest, WhatIsLostWithAConnectionIsSaidAgain) {
  for (const MessageKind first :
       {MessageKind::kPauseOffer, MessageKind::kPaused, MessageKind::kFinished}) {
    SCOPED_TRACE(KindName(first));
    SimulatedClusterOptions options = MixedTraining(200, std::chrono::milliseconds(2));
    const Duration silence = TimingOf(options.job).allowed_silence();
    std::optional<Time> cut;
    SimulatedCluster* watched = nullptr;
    options.network.faults.drop = 1;
    options.network.fault_filter = [&](const Envelope& envelope) {
      if (envelope.from.node != NodeId{Role::kWorker, 2} || envelope.to.node != kScheduler ||
          envelope.to.lane != kControlLane) {
        return false;
      }
      const Time now = watched->runtime().now();
      if (envelope.kind == first && !cut) cut = now;
      return cut && now < *cut + silence;
    };
    SimulatedCluster cluster(options);
    watched = &cluster;
    AskAt(Seconds(0.5), RandomPlan(options, 7), cluster);
    ASSERT_TRUE(cluster.Run(Seconds(60))) << "it hangs";
    ASSERT_TRUE(cut);
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    EXPECT_LT(cluster.node(kScheduler).ended, *cut + silence + Seconds(10));
  }
}

// A frame that never comes, in each step of a switch: somebody says who is missing.
TEST(SwitchTest, EachStepHasADeadlineThatNamesWhoIsMissing) {
  struct Step {
    MessageKind lost;
    NodeId to;
    const char* expected;
  };
  const std::vector<Step> steps = {
      {MessageKind::kPauseRequest, {Role::kWorker, 2}, "worker 2 (machine2"},
      {MessageKind::kPauseAt, {Role::kWorker, 2}, "worker 2 (machine2"},
      {MessageKind::kFetchOptimizerState, {Role::kServer, 1}, "server 1 (machine1"},
      {MessageKind::kOptimizerState, {Role::kWorker, 0}, "server "},
      {MessageKind::kInitialOptimizerState, {Role::kServer, 0}, "worker 0 (machine0"},
      {MessageKind::kInitialOptimizerState, {Role::kWorker, 3}, "worker 1 (machine1"},
  };
  for (const Step& step : steps) {
    SCOPED_TRACE(KindName(step.lost) + " to " + step.to.ToString());
    SimulatedClusterOptions options = MixedTraining(100000, std::chrono::milliseconds(2));
    options.job.mutable_communication()->set_stall_deadline_seconds(1);
    options.job.mutable_cluster()->set_join_deadline_seconds(2);
    options.network.faults.drop = 1;
    options.network.fault_filter = [&](const Envelope& envelope) {
      return envelope.kind == step.lost && envelope.to.node == step.to;
    };
    SimulatedCluster cluster(options);
    const bool to_worker =
        step.lost == MessageKind::kInitialOptimizerState && step.to.role == Role::kWorker;
    AskAt(Seconds(0.5), OtherServers(options, 5, to_worker), cluster);
    ASSERT_TRUE(cluster.Run(Seconds(30)));
    ExpectAllEnded(cluster, ExitCode::kDeadlineExceeded);
    EXPECT_THAT(cluster.node(kScheduler).end->reason(), testing::HasSubstr(step.expected));
  }
}

}  // namespace
}  // namespace poseidon
