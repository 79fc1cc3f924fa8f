#include "planner/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cost/bucket_costs.h"
#include "planner/cost/exchange_tables.h"
#include "planner/planner.h"
#include "proto/bucket.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

// 1 GB/s, 1 ms, no headers, no buffers, processing for nothing.
ClusterModel Plain(int workers, int servers, bool colocated = true) {
  ClusterModel cluster;
  cluster.workers = workers;
  cluster.servers = servers;
  cluster.colocated = colocated;
  cluster.goodput = 1e9;
  cluster.latency = 1e-3;
  cluster.message_cost = 0;
  cluster.send_buffer_bytes = 0;
  cluster.header_bytes = 0;
  cluster.reduction_rate = 1e18;
  cluster.update_rate = 1e18;
  cluster.flops = 1e30;
  return cluster;
}

// 10 ms forward, 20 ms backward.
LayerSpec& AddTimed(int64_t floats, ModelSpec& model) {
  LayerSpec& layer = *model.add_layers();
  layer.set_name("layer" + std::to_string(model.layers_size()));
  layer.add_blobs()->add_shape(floats);
  layer.set_forward_ms(10);
  layer.set_backward_ms(20);
  return layer;
}

LayerSpec& AddTimedProduct(int64_t outputs, int64_t inputs, int64_t rows, ModelSpec& model) {
  LayerSpec& layer = AddTimed(outputs * inputs, model);
  layer.mutable_inner_product()->set_outputs(outputs);
  layer.mutable_inner_product()->set_inputs(inputs);
  layer.mutable_inner_product()->set_rows(rows);
  return layer;
}

Communication Settings(Communication::Policy policy, int64_t chunk_bytes = 268435456) {
  Communication communication;
  communication.set_policy(policy);
  communication.set_kv_pair_bytes(chunk_bytes);
  return communication;
}

// Milliseconds of the only bucket's exchange, which is all exposed: one layer computes 30 ms.
double ExchangeOf(const ModelSpec& model, const ClusterModel& cluster,
                  const Communication& communication) {
  const InformationBook book(model, cluster.workers, cluster.servers);
  Predictor predictor(book, cluster);
  Plan plan = MakePlan(book, communication);
  predictor.Annotate(plan);
  // One worker's lane is done a message or two before another's.
  EXPECT_NEAR(plan.iteration_ms(), 30 + plan.buckets(0).prediction().exchange_ms(), 0.05);
  return plan.buckets(0).prediction().exchange_ms();
}

// One chunk of 4 MB: 4 ms of a link.
TEST(PredictorTest, OneLayerTakesWhatPaperAndPencilSay) {
  ModelSpec model;
  AddTimed(1000000, model);
  // Down: 3 chunks one after another out of the server's link. Who is answered later is ready
  // later, so that the chunks on their way up do not meet.
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 4), Settings(Communication::ALL_PS)), 1 + 4 + 1 + 12,
              0.01);
  // On a machine of its own the server has 4 to answer.
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 1, false), Settings(Communication::ALL_PS)),
              1 + 4 + 1 + 16, 0.01);
  // 6 steps of a quarter; 4 of half, a quarter, a quarter, half; on 2 x 2 the same bytes.
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 4), Settings(Communication::ALL_RING)), 6 * (1 + 1), 0.01);
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 4), Settings(Communication::ALL_HALVING_DOUBLING)),
              4 * 1 + 6, 0.01);
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 4), Settings(Communication::ALL_TORUS)), 4 * 1 + 6, 0.01);
}

// 2 MB of u and 2 MB of v from each worker, 4 x 4 MB of values.
TEST(PredictorTest, FactorsTakeWhatPaperAndPencilSay) {
  ModelSpec model;
  AddTimedProduct(1000, 1000, 500, model);
  // Everybody's factors reach worker 3 last, when its link has been idle for the other two.
  const double direct = ExchangeOf(model, Plain(4, 4), Settings(Communication::ALL_SFB));
  EXPECT_GE(direct, 1 + 12);
  EXPECT_LE(direct, 1 + 24);
  // The last factor has 3 hops; links are busy all the time but for the first and last latency.
  Communication ring = Settings(Communication::ALL_SFB);
  ring.set_factor_ring(true);
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 4), ring), 12 + 1, 2.01);
  // As parameter servers with this size.
  EXPECT_NEAR(ExchangeOf(model, Plain(4, 4), Settings(Communication::ALL_ADAM)), 1 + 4 + 1 + 12,
              0.01);
}

TEST(PredictorTest, ProcessingCounts) {
  ModelSpec model;
  AddTimedProduct(1000, 1000, 500, model);
  ClusterModel cluster = Plain(2, 2);
  const double free = ExchangeOf(model, cluster, Settings(Communication::ALL_SFB));
  cluster.flops = 2e11;  // 2 x 1000 x 1000 x 1000 operations: 10 ms
  EXPECT_NEAR(ExchangeOf(model, cluster, Settings(Communication::ALL_SFB)), free + 10, 0.1);
  cluster = Plain(2, 2);
  const double served = ExchangeOf(model, cluster, Settings(Communication::ALL_PS));
  cluster.reduction_rate = 1e9;  // of 4 MB: 4 ms
  EXPECT_NEAR(ExchangeOf(model, cluster, Settings(Communication::ALL_PS)), served + 4, 0.1);
  EXPECT_NEAR(ExchangeOf(model, cluster, Settings(Communication::ALL_RING)), 2 * (1 + 2) + 2, 0.1);
}

// A lane that is behind answers a layer when it has added that up, whatever has come by then.
TEST(PredictorTest, AServerThatIsBehindAnswersWhatItHasAddedUp) {
  ModelSpec model;
  AddTimed(1000000, model);
  AddTimed(1000000, model);
  ClusterModel cluster = Plain(2, 1);
  cluster.goodput = 1e15;
  cluster.latency = 0;
  cluster.reduction_rate = 4e6 / 0.030;  // 30 ms for each gradient
  cluster.update_rate = 4e6 / 0.030;
  const InformationBook book(model, 2, 1);
  Predictor predictor(book, cluster);
  Plan plan = MakePlan(book, Settings(Communication::ALL_PS));
  predictor.Annotate(plan);
  EXPECT_NEAR(plan.buckets(1).prediction().exchange_ms(), 2 * 30 + 30, 0.01);
  // 20 ms of which pass while the backward pass is behind it.
  EXPECT_NEAR(plan.buckets(0).prediction().exchange_ms(), 2 * (2 * 30 + 30) - 20, 0.01);
}

// The lanes of workers rebuild one layer while those of servers update another.
TEST(PredictorTest, LanesOfWorkersAndServersWorkSideBySide) {
  ModelSpec model;
  AddTimed(2000000, model);
  AddTimedProduct(1000, 1000, 1, model);
  ClusterModel cluster = Plain(2, 2);
  cluster.goodput = 1e15;
  cluster.update_rate = 4e7;
  const InformationBook book(model, 2, 2);
  const Plan plan = MakePlan(book, Settings(Communication::ALL_SFB));
  ASSERT_EQ(plan.buckets(0).scheme(), PS);
  ASSERT_EQ(plan.buckets(1).scheme(), SFB);
  // 4 MB at each worker, and as much at each server.
  EXPECT_NEAR(Predictor(book, cluster).LeastSeconds(plan), 0.1, 1e-3);
}

// Whatever number of workers it is that sixteen stand for, each gets all others' factors.
TEST(PredictorTest, RepresentativesGetTheFactorsOfAll) {
  ModelSpec model;
  AddTimed(4000000, model);
  AddTimedProduct(1000, 1000, 8, model);
  for (const int workers : {17, 22, 40}) {
    SCOPED_TRACE(workers);
    const ClusterModel cluster = Plain(workers, workers);
    const InformationBook book(model, workers, workers);
    const Plan plan = MakePlan(book, Settings(Communication::ALL_RING, 1 << 14),
                               {{.first_layer = 0, .scheme = RING, .chunk_floats = 1 << 12},
                                {.first_layer = 1, .scheme = SFB, .chunk_floats = 1 << 12}});
    ASSERT_EQ(Representatives(plan, cluster), kRepresentatives);
    Predictor predictor(book, cluster);
    const double predicted = predictor.Predict(plan).seconds;
    EXPECT_GE(predicted, predictor.LeastSeconds(plan));
    EXPECT_LE(predicted, 1.5 * predictor.Estimate(plan).seconds);
  }
}

// A lane handles one message after the other.
TEST(PredictorTest, MessagesCost) {
  ModelSpec model;
  AddTimed(1000, model);
  ClusterModel cluster = Plain(4, 4);
  cluster.goodput = 1e15;
  const auto costs = [&](Communication::Policy policy, int64_t chunk_bytes) {
    cluster.message_cost = 0;
    const double free = ExchangeOf(model, cluster, Settings(policy, chunk_bytes));
    cluster.message_cost = 1e-4;
    return (ExchangeOf(model, cluster, Settings(policy, chunk_bytes)) - free) / 0.1;
  };
  // The server's three or four and the answer; six steps; four steps.
  EXPECT_NEAR(costs(Communication::ALL_PS, 4000), 4 + 1, 1.1);
  EXPECT_NEAR(costs(Communication::ALL_RING, 4000), 6, 0.01);
  EXPECT_NEAR(costs(Communication::ALL_HALVING_DOUBLING, 4000), 4, 0.01);
  // A hundred chunks at a time: each worker's lane is busy with all their messages, behind which
  // five of six latencies, 10 messages' time each, are hidden.
  EXPECT_NEAR(costs(Communication::ALL_RING, 40), 600 - 50, 1);
  EXPECT_GE(costs(Communication::ALL_PS, 40), 100);
}

TEST(PredictorTest, OneWorkerWaitsForNothing) {
  ModelSpec model;
  AddTimed(1000000, model);
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_RING,
                            Communication::ALL_HALVING_DOUBLING, Communication::ALL_TORUS}) {
    EXPECT_NEAR(ExchangeOf(model, Plain(1, 1), Settings(policy)), 0, 1e-3);
  }
}

// What sockets and kernels hold can't be overtaken. It is on the way to the server: answers leave
// as fast as gradients come.
TEST(PredictorTest, SendBuffersHoldUpUrgentLayers) {
  ModelSpec model;
  AddTimed(1000, model);
  AddTimed(30000000, model);
  const InformationBook book(model, 1, 1);
  const auto exchange = [&](int64_t send_buffer_bytes) {
    ClusterModel cluster = Plain(1, 1, false);
    cluster.send_buffer_bytes = send_buffer_bytes;
    Predictor predictor(book, cluster);
    Plan plan = MakePlan(book, Settings(Communication::ALL_PS, 1000000));
    predictor.Annotate(plan);
    return plan.buckets(0).prediction().exchange_ms();
  };
  const double free = exchange(0);
  EXPECT_LE(free, 2 + 3 * 1);  // two latencies, and frames of 1 ms that are on their way
  EXPECT_NEAR(exchange(8000000), free + 8, 1);
}

// Three layers; the top one takes the link for 60 ms, the lowest is urgent when it is ready.
TEST(PredictorTest, UrgentLayersOvertakeAndDeepOnesHideBehindTheForwardPass) {
  ModelSpec model;
  AddTimed(1000, model);
  AddTimed(1000, model);
  AddTimed(15000000, model);
  const InformationBook book(model, 2, 2);
  Predictor predictor(book, Plain(2, 2));
  Plan plan = MakePlan(book, Settings(Communication::ALL_RING, 1000000));
  predictor.Annotate(plan);
  EXPECT_NEAR(plan.compute_ms(), 90, 1e-6);
  // The top layer is ready at 50 of the iteration and needed at 110; 60 ms and a little.
  const BucketPrediction& top = plan.buckets(2).prediction();
  EXPECT_NEAR(top.ready_ms(), 50 + plan.iteration_ms() - 90, 1);
  EXPECT_NEAR(top.exchange_ms(), 62, 2);
  EXPECT_LT(plan.buckets(0).prediction().exchange_ms(), 5);

  Plan fifo = plan;
  fifo.set_fifo(true);
  Plan all_at_the_end = plan;
  all_at_the_end.set_no_overlap(true);
  all_at_the_end.set_wait_for_all(true);
  const double with_priority = predictor.Predict(plan).seconds;
  EXPECT_GT(predictor.Predict(fifo).seconds, with_priority + 0.015);
  EXPECT_GT(predictor.Predict(all_at_the_end).seconds, 0.090 + 0.060);
}

TEST(PredictorTest, StaleWorkersWaitForTheAnswerToTheirOwnGradient) {
  ModelSpec model;
  AddTimed(10000000, model);
  const InformationBook book(model, 2, 2);
  Predictor predictor(book, Plain(2, 2));
  Communication communication = Settings(Communication::ALL_PS, 1000000);
  const double bsp = predictor.Predict(MakePlan(book, communication)).seconds;
  communication.set_staleness(-1);
  // There is one layer, so that nothing hides behind computing, and both workers are as fast.
  EXPECT_NEAR(predictor.Predict(MakePlan(book, communication)).seconds, bsp, 0.05 * bsp);
}

TEST(PredictorTest, BytesAreTheFormulas) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 8, 8);
  Predictor predictor(book, Plain(8, 8));
  const int fc7 = 17;
  const auto bytes = [&](Communication::Policy policy, WireCodec codec) {
    Communication communication = Settings(policy, 2097152);
    communication.set_codec(codec);
    Plan plan = MakePlan(book, communication);
    predictor.Annotate(plan);
    return plan.buckets(fc7).prediction();
  };
  const int64_t floats = 4096 * 4096 + 4096;
  EXPECT_NEAR(bytes(Communication::ALL_RING, FP32).bytes_sent(), 2 * 7 * floats * 4 / 8.0, 1000);
  EXPECT_NEAR(bytes(Communication::ALL_RING, BF16).bytes_sent(), 2 * 7 * floats * 2 / 8.0, 1000);
  EXPECT_EQ(bytes(Communication::ALL_SFB, FP32).bytes_sent(), 7 * 32 * 8192 * 4);
  EXPECT_EQ(bytes(Communication::ALL_SFB, FP32).bytes_received(), 7 * 32 * 8192 * 4);
  // The fullest server has 5 of 33 chunks: more than an eighth.
  EXPECT_GE(bytes(Communication::ALL_PS, FP32).bytes_sent(), 2 * 7 * floats * 4 / 8);
  EXPECT_EQ(bytes(Communication::ALL_ADAM, FP32).bytes_sent(), 7 * floats * 4);
  // The server gets 7 x 32 x 8192 floats, fewer than every worker gets back.
  EXPECT_EQ(bytes(Communication::ALL_ADAM, FP32).bytes_received(), floats * 4);
}

TEST(PredictorTest, RunnerUpIsAnotherSchemeThatTheLayerCanUse) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 8, 8);
  Predictor predictor(book, Plain(8, 8));
  Plan plan = MakePlan(book, Settings(Communication::ALL_PS, 2097152));
  predictor.Annotate(plan);
  for (const BucketPlan& bucket : plan.buckets()) {
    EXPECT_NE(bucket.prediction().runner_up(), PS);
    EXPECT_NE(bucket.prediction().runner_up(), SCHEME_UNSPECIFIED);
    const bool product = model.layers(bucket.first_layer()).has_inner_product();
    EXPECT_TRUE(product || !UsesFactors(bucket.prediction().runner_up()));
  }
  // 32 x 29184 floats instead of 102 million.
  EXPECT_EQ(plan.buckets(16).prediction().runner_up(), SFB);
  EXPECT_LT(plan.buckets(16).prediction().runner_up_ms(),
            plan.buckets(16).prediction().exchange_ms());
}

Plan OfLocalSteps(const ModelSpec& model, Communication::Policy policy, int overlap) {
  const InformationBook book(model, 4, 4);
  Communication communication = Settings(policy, 1 << 20);
  communication.set_local_steps(8);
  communication.set_fragments(2);
  communication.set_overlap_steps(overlap);
  Predictor predictor(book, Plain(4, 4));
  Plan plan = MakePlan(book, communication);
  predictor.Annotate(plan);
  return plan;
}

constexpr Communication::Policy kOfLocalSteps[] = {Communication::ALL_PS, Communication::ALL_RING,
                                                   Communication::ALL_HALVING_DOUBLING,
                                                   Communication::ALL_TORUS};

// A step takes 60 ms. One layer is sent after the fourth step, the other after the last.
ModelSpec TwoFragments(int64_t floats) {
  ModelSpec model;
  AddTimed(floats, model);
  AddTimed(floats, model);
  return model;
}

TEST(PredictorTest, OfLocalStepsAFragmentIsSentBetweenReadyAndFresh) {
  for (const auto policy : kOfLocalSteps) {
    for (const int overlap : {0, 1, 3}) {
      SCOPED_TRACE(Communication::Policy_Name(policy) + ", overlap " + std::to_string(overlap));
      const Plan plan = OfLocalSteps(TwoFragments(1000000), policy, overlap);
      for (const BucketPlan& bucket : plan.buckets()) {
        const BucketPrediction& prediction = bucket.prediction();
        EXPECT_GT(prediction.sent_ms(), prediction.ready_ms());
        // The last byte takes a millisecond to arrive. Under servers workers differ by up to a
        // chunk, which takes another one.
        EXPECT_LT(prediction.sent_ms(), prediction.fresh_ms());
        EXPECT_NEAR(prediction.sent_ms(), prediction.fresh_ms() - 1, 1);
      }
    }
  }
}

// Where nothing overlaps, a fragment's exchange goes on before the next step does; and where one
// step overlaps, the last fragment is waited for after the first step of the iteration that
// follows.
TEST(PredictorTest, OfLocalStepsAFragmentIsReadyAfterTheWaitForOthers) {
  for (const auto policy : kOfLocalSteps) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    const ModelSpec model = TwoFragments(12000000);
    const auto of = [](const Plan& plan, int bucket) { return plan.buckets(bucket).prediction(); };
    const Plan apart = OfLocalSteps(model, policy, 0);
    const double exchange = of(apart, 0).exchange_ms();
    EXPECT_GT(exchange, 61);
    EXPECT_NEAR(of(apart, 0).ready_ms(), 240, 1e-6);
    EXPECT_NEAR(of(apart, 1).ready_ms(), 480 + exchange, 1);
    EXPECT_NEAR(of(apart, 1).fresh_ms(), apart.iteration_ms(), 1);

    const Plan beside = OfLocalSteps(model, policy, 1);
    EXPECT_NEAR(of(beside, 0).ready_ms(), 240 + exchange - 60, 1);
    EXPECT_NEAR(of(beside, 1).ready_ms(), beside.iteration_ms(), 1e-6);

    const Plan hidden = OfLocalSteps(model, policy, 3);
    EXPECT_NEAR(of(hidden, 0).ready_ms(), 240, 1e-6);
    EXPECT_NEAR(of(hidden, 1).ready_ms(), 480, 1e-6);
  }
}

TEST(PredictorTest, OfLocalStepsTheRunnerUpHasNoFactors) {
  ModelSpec model;
  AddTimedProduct(1000, 1000, 1, model);
  AddTimedProduct(1000, 1000, 1, model);
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_RING}) {
    const Plan plan = OfLocalSteps(model, policy, 0);
    for (const BucketPlan& bucket : plan.buckets()) {
      EXPECT_NE(bucket.prediction().runner_up(), SCHEME_UNSPECIFIED);
      EXPECT_FALSE(UsesFactors(bucket.prediction().runner_up()))
          << SchemeName(bucket.prediction().runner_up());
    }
  }
}

// What the search goes by may be off, but not far, and what bounds a plan from below must.
TEST(PredictorTest, EstimatesAreNearAndBoundsAreBelow) {
  for (const ModelSpec& model : {Vgg19(32), GoogLeNet(32), ResNet50(32)}) {
    for (const int workers : {2, 8, 16}) {
      const InformationBook book(model, workers, workers);
      ClusterModel cluster = Plain(workers, workers);
      cluster.flops = 4e12;
      cluster.latency = 50e-6;
      ClusterModel unlike = cluster;
      unlike.deviations[0] = {.compute_factor = 1.5, .link_share = 1};
      unlike.deviations[1] = {.compute_factor = 0.5, .link_share = 0.3};
      for (const ClusterModel& machines : {cluster, unlike}) {
        Predictor predictor(book, machines);
        for (const auto policy :
             {Communication::BYTES, Communication::ALL_PS, Communication::ALL_RING,
              Communication::ALL_HALVING_DOUBLING, Communication::ALL_TORUS}) {
          SCOPED_TRACE(Communication::Policy_Name(policy) + ' ' + std::to_string(workers) +
                       (machines.deviations.empty() ? "" : ", machines differ"));
          const Plan plan = MakePlan(book, Settings(policy, 2097152));
          const double predicted = predictor.Predict(plan).seconds;
          const double ratio = predictor.Estimate(plan).seconds / predicted;
          EXPECT_GT(ratio, 0.6);
          EXPECT_LT(ratio, 1.4);
          EXPECT_LE(predictor.LeastSeconds(plan), predicted * 1.0001);
          EXPECT_GE(predicted, predictor.ComputeSeconds());
        }
      }
    }
  }
}

// A ring sends 2 (P - 1) / P of the model through each link, the slow one, too; and it goes no
// faster than its slowest worker computes.
TEST(PredictorTest, TheSlowestMachineIsWaitedFor) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 4, 4);
  const Plan plan = MakePlan(book, Settings(Communication::ALL_RING, 1 << 18));
  ClusterModel cluster = Plain(4, 4);
  cluster.flops = 1e18;
  cluster.deviations[2].link_share = 0.1;
  Predictor slow_link(book, cluster);
  const double floats = static_cast<double>(book.Query(Property::kParameters));
  const double seconds = 2 * 0.75 * 4 * floats / (0.1 * cluster.goodput);
  EXPECT_NEAR(slow_link.Predict(plan).seconds, seconds, 0.02 * seconds);
  cluster.goodput = 1e18;
  cluster.flops = 1e12;
  const double alike = Predictor(book, cluster).ComputeSeconds();
  cluster.deviations[3].compute_factor = 2.5;
  Predictor slow_worker(book, cluster);
  EXPECT_DOUBLE_EQ(slow_worker.ComputeSeconds(), 2.5 * alike);
  EXPECT_NEAR(slow_worker.Predict(plan).seconds, 2.5 * alike, 0.01 * alike);
}

TEST(PredictorTest, TheNearestToTheTrialIsThatOfItsNetwork) {
  const ModelSpec model = Vgg19(32);
  const InformationBook book(model, 4, 4);
  Plan plan = MakePlan(book, Settings(Communication::ALL_PS, 2097152));
  ClusterModel cluster = Plain(4, 4);
  Predictor first(book, cluster);
  std::vector<Predictor> farther;
  for (int tier = 0; tier < 2; ++tier) {
    cluster.goodput /= 10;
    farther.emplace_back(book, cluster);
  }
  EXPECT_EQ(&NearestToTrial(first, {}, plan), &first);
  EXPECT_EQ(&NearestToTrial(first, farther, plan), &farther[1]) << "it has not been tried";
  plan.set_simulated_ms(1100 * farther[0].Predict(plan).seconds);
  EXPECT_EQ(&NearestToTrial(first, farther, plan), &farther[0]);
  plan.set_simulated_ms(1000 * first.Predict(plan).seconds);
  EXPECT_EQ(&NearestToTrial(first, farther, plan), &first);
}

TEST(LayerTimesTest, ComeFromTimesElseOperationsElseParameters) {
  ModelSpec model;
  model.set_batch(10);
  model.add_layers()->add_blobs()->add_shape(500);
  model.add_layers()->add_blobs()->add_shape(1500);
  EXPECT_DOUBLE_EQ(ComputeTimes(model, 1e4)[1].forward, 2 * 1500 * 10 / 1e4);
  model.mutable_layers(0)->set_multiply_adds(7000);
  EXPECT_DOUBLE_EQ(ComputeTimes(model, 1e4)[0].forward, 2 * 7000 * 10 / 1e4);
  EXPECT_DOUBLE_EQ(ComputeTimes(model, 1e4)[0].backward, 2 * ComputeTimes(model, 1e4)[0].forward);
  EXPECT_EQ(ComputeTimes(model, 1e4)[1].forward, 0);
  model.mutable_layers(1)->set_backward_ms(4);
  EXPECT_DOUBLE_EQ(ComputeTimes(model, 1e4)[1].backward, 0.004);
  EXPECT_EQ(ComputeTimes(model, 1e4)[0].forward, 0);
}

TEST(ClusterSpecTest, IsWhatTheJobSays) {
  Job job;
  job.mutable_cluster()->set_workers(3);
  job.mutable_cluster()->set_servers(2);
  Network& network = *job.mutable_cluster()->mutable_network();
  network.set_bandwidth("8Gbps");
  network.set_goodput_share(0.5);
  network.set_latency("20us");
  network.set_message_cost("7us");
  network.set_colocated(false);
  job.mutable_cluster()->set_reduction_rate(3e9);
  job.mutable_cluster()->set_update_rate(1e9);
  job.mutable_communication()->set_window_bytes(1 << 20);
  const ClusterModel cluster = ClusterOf(job);
  EXPECT_DOUBLE_EQ(cluster.goodput, 5e8);
  EXPECT_DOUBLE_EQ(cluster.latency, 20e-6);
  EXPECT_EQ(cluster.machines(), 5);
  EXPECT_EQ(cluster.MachineOfServer(1), 4);
  EXPECT_DOUBLE_EQ(cluster.message_cost, 7e-6);
  EXPECT_DOUBLE_EQ(cluster.flops, 4e12);
  EXPECT_DOUBLE_EQ(cluster.reduction_rate, 3e9);
  EXPECT_DOUBLE_EQ(cluster.update_rate, 1e9);
  EXPECT_EQ(cluster.send_buffer_bytes, (1 << 20) + (128 << 10));
}

}  // namespace
}  // namespace poseidon
