// The syncers and what is around them, call by call. Whole trainings are
// tests/simulation/bsp_test.cc.
#include <cblas.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "client/bucket_progress.h"
#include "client/sync/factor_broadcast_syncer.h"
#include "client/sync/gradient_buffers.h"
#include "client/sync/parameter_server_syncer.h"
#include "client/sync/sync_lane.h"
#include "core/arithmetic/rebuild.h"
#include "tests/unit/work_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Worker 1 of 3; layer 0 is PS, 7 floats in chunks on (server 0, lane 0), (1, 1), (1, 0); layer 1
// is SFB on lane 1, outputs 2, inputs 3, one row a worker, with a bias.
std::shared_ptr<SyncContext> MakeContext(bool factor_ring = false) {
  wire::PlanAndModel plan;
  plan.mutable_plan()->set_workers(3);
  plan.mutable_plan()->set_servers(2);
  plan.mutable_plan()->set_lanes(2);
  plan.mutable_model()->mutable_update_rule()->set_type("SGD");
  plan.mutable_model()->mutable_update_rule()->set_lr_policy("fixed");
  plan.mutable_model()->mutable_update_rule()->set_base_lr(3);
  BucketPlan* ps = plan.mutable_plan()->add_buckets();
  ps->set_name("conv");
  ps->set_scheme(PS);
  ps->set_layer_count(1);
  const auto add_chunk = [](BucketPlan* bucket, int64_t offset, int64_t size, int server,
                            int lane) {
    Chunk* chunk = bucket->add_chunks();
    chunk->set_offset(offset);
    chunk->set_size(size);
    chunk->set_server(server);
    chunk->set_lane(lane);
  };
  add_chunk(ps, 0, 3, 0, 0);
  add_chunk(ps, 3, 2, 1, 1);
  add_chunk(ps, 5, 2, 1, 0);
  plan.mutable_model()->add_layers()->add_blobs()->add_shape(7);
  BucketPlan* sfb = plan.mutable_plan()->add_buckets();
  sfb->set_name("fc");
  sfb->set_scheme(SFB);
  sfb->set_first_layer(1);
  sfb->set_layer_count(1);
  sfb->set_update_at_workers(true);
  sfb->set_lane(1);
  sfb->set_factor_ring(factor_ring);
  add_chunk(sfb, 0, 8, -1, 1);
  LayerSpec* fc = plan.mutable_model()->add_layers();
  for (const int64_t floats : {6, 2}) {
    BlobSpec* blob = fc->add_blobs();
    blob->add_shape(floats);
    blob->set_lr_mult(1);
  }
  fc->mutable_inner_product()->set_outputs(2);
  fc->mutable_inner_product()->set_inputs(3);
  fc->mutable_inner_product()->set_rows(1);
  auto memory = std::make_shared<ModelMemory>(plan, false);
  auto context = std::make_shared<SyncContext>(std::move(plan), std::move(memory));
  context->place = 1;
  context->epoch = 4;
  return context;
}

Envelope Frame(MessageKind kind, const NodeId& from, int64_t iteration, uint32_t chunk,
               std::vector<float> floats) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.from.node = from;
  envelope.epoch = 4;
  envelope.iteration = iteration;
  envelope.chunk = chunk;
  auto owned = std::make_shared<std::vector<float>>(std::move(floats));
  envelope.body = Payload::View(std::span<const float>(*owned), owned);
  return envelope;
}

NodeId Worker(int rank) { return {Role::kWorker, rank}; }
NodeId Server(int rank) { return {Role::kServer, rank}; }

TEST(ParameterServerSyncerTest, SendsItsLanesChunksAndTakesTheAnswers) {
  const auto context = MakeContext();
  ParameterServerSyncer syncer(context, 0, 0);
  Outbox outbox;
  EXPECT_EQ(syncer.fresh_iteration(), -1);
  EXPECT_THAT(syncer.missing(), ElementsAre(Server(0), Server(1)));
  const auto receive = [&](const NodeId& from, int64_t iteration, uint32_t chunk,
                           std::vector<float> floats) {
    return syncer.Receive(Frame(MessageKind::kValues, from, iteration, chunk, std::move(floats)),
                          outbox);
  };
  EXPECT_EQ(receive(Server(1), 0, 2, {6, 7}), FrameStatus::kAccepted);
  EXPECT_THAT(syncer.missing(), ElementsAre(Server(0)));
  EXPECT_EQ(receive(Server(1), 0, 2, {9, 9}), FrameStatus::kDuplicate);
  EXPECT_EQ(receive(Server(1), 0, 0, {1, 2, 3}), FrameStatus::kInvalid);  // not its owner
  EXPECT_EQ(receive(Server(1), 0, 1, {4, 5}), FrameStatus::kInvalid);     // of the other lane
  EXPECT_EQ(receive(Server(0), 0, 0, {1, 2}), FrameStatus::kInvalid);
  EXPECT_EQ(receive(Server(0), 1, 0, {1, 2, 3}), FrameStatus::kInvalid);
  EXPECT_EQ(receive(Server(0), 0, 0, {1, 2, 3}), FrameStatus::kComplete);
  EXPECT_EQ(syncer.fresh_iteration(), 0);
  EXPECT_THAT(syncer.missing(), IsEmpty());
  EXPECT_THAT(context->memory->values(0), ElementsAre(1, 2, 3, 0, 0, 6, 7));
  EXPECT_EQ(receive(Server(0), 1, 0, {1, 2, 3}), FrameStatus::kInvalid);  // before the gradient

  const std::span<float> gradient = GradientBuffersOf(*context, 0, 0).dense;
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i);
  EXPECT_EQ(syncer.Send(0, outbox), FrameStatus::kAccepted);
  ASSERT_EQ(outbox.messages.size(), 2u);
  const Envelope& sent = outbox.messages[1];
  EXPECT_EQ(sent.kind, MessageKind::kGradient);
  EXPECT_EQ(sent.to, (Address{Server(1), kFirstDataLane}));
  EXPECT_EQ(sent.epoch, 4u);
  EXPECT_EQ(sent.chunk, 2u);
  EXPECT_EQ(sent.body.bytes().data(), reinterpret_cast<const std::byte*>(&gradient[5]));
  EXPECT_EQ(context->traffic[0].bytes_sent, 20);
  EXPECT_EQ(context->traffic[0].bytes_received, 0);  // initial values are not counted
  EXPECT_EQ(receive(Server(0), 0, 0, {1, 2, 3}), FrameStatus::kDuplicate);
  EXPECT_EQ(receive(Server(0), 1, 0, {1, 1, 1}), FrameStatus::kAccepted);
  EXPECT_EQ(receive(Server(1), 1, 2, {1, 1}), FrameStatus::kComplete);
  EXPECT_EQ(context->traffic[0].bytes_received, 20);
}

TEST(FactorBroadcastSyncerTest, RebuildsWhenAllFactorsAreHereInAnyOrder) {
  const auto context = MakeContext();
  FactorBroadcastSyncer syncer(context, 1);
  Outbox outbox;
  EXPECT_THAT(syncer.missing(), ElementsAre(Worker(0)));
  const auto receive = [&](int worker, int64_t iteration, uint32_t factor,
                           std::vector<float> floats) {
    return syncer.Receive(Frame(MessageKind::kFactors, Worker(worker), iteration,
                                2 * worker + factor, std::move(floats)),
                          outbox);
  };
  // A faster worker's, before the initial values.
  EXPECT_EQ(receive(2, 0, 0, {1, 2}), FrameStatus::kAccepted);
  EXPECT_EQ(receive(2, 0, 0, {1, 2}), FrameStatus::kDuplicate);
  EXPECT_EQ(syncer.Receive(
                Frame(MessageKind::kInitialValues, Worker(2), 0, 0, std::vector<float>(8)), outbox),
            FrameStatus::kInvalid);
  EXPECT_EQ(
      syncer.Receive(
          Frame(MessageKind::kInitialValues, Worker(0), 0, 0, std::vector<float>(8, 100)), outbox),
      FrameStatus::kComplete);
  EXPECT_EQ(syncer.fresh_iteration(), 0);
  EXPECT_THAT(syncer.missing(), IsEmpty());  // it computes itself

  const GradientBuffers own = GradientBuffersOf(*context, 1, 0);
  EXPECT_TRUE(own.dense.empty());
  std::copy_n(std::vector<float>{3, 4}.begin(), 2, own.u.begin());
  std::copy_n(std::vector<float>{1, 0, 2}.begin(), 3, own.v.begin());
  EXPECT_EQ(syncer.Send(0, outbox), FrameStatus::kAccepted);
  ASSERT_EQ(outbox.messages.size(), 4u);  // u and v to two workers
  EXPECT_EQ(outbox.messages[3].to, (Address{Worker(2), kFirstDataLane + 1}));
  EXPECT_EQ(outbox.messages[3].body.size(), 12u);
  EXPECT_THAT(syncer.missing(), ElementsAre(Worker(0), Worker(2)));
  EXPECT_EQ(receive(1, 0, 0, {1, 2}), FrameStatus::kInvalid);  // its own
  EXPECT_EQ(receive(0, 2, 0, {1, 2}), FrameStatus::kInvalid);  // nobody can be there yet
  EXPECT_EQ(receive(0, 0, 1, {1, 2}), FrameStatus::kInvalid);  // too short
  EXPECT_EQ(receive(0, 0, 2, {1, 2}), FrameStatus::kInvalid);
  EXPECT_EQ(receive(2, 0, 1, {0, 1, 0}), FrameStatus::kAccepted);
  EXPECT_EQ(receive(0, 0, 1, {1, 1, 1}), FrameStatus::kAccepted);
  EXPECT_EQ(receive(2, 1, 1, {5, 5, 5}), FrameStatus::kAccepted);  // of the next iteration
  EXPECT_EQ(receive(0, 0, 0, {-1, 1}), FrameStatus::kAccepted);
  EXPECT_EQ(syncer.fresh_iteration(), 0);  // before the work that this leaves is done
  EXPECT_EQ(receive(0, 0, 0, {-1, 1}), FrameStatus::kDuplicate);
  EXPECT_THAT(syncer.missing(), IsEmpty());
  ASSERT_EQ(outbox.work.size(), 1u);
  EXPECT_EQ(outbox.work[0].priority, PriorityOf(context->plan.plan(), 1, 0));
  FinishWork(outbox);
  EXPECT_EQ(syncer.fresh_iteration(), 1);
  // Sum of u v^T: rows (-1, 1)(1 1 1), (3, 4)(1 0 2), (1, 2)(0 1 0); learning rate 3, 3 workers.
  EXPECT_THAT(context->memory->values(1),
              ElementsAre(100 - 2, 100 - 0, 100 - 5, 100 - 5, 100 - 3, 100 - 9, 100 - 3, 100 - 7));
  EXPECT_EQ(context->traffic[1].bytes_sent, 40);
  EXPECT_EQ(context->traffic[1].bytes_received, 52);  // 40, and 12 of the next iteration
  EXPECT_EQ(receive(0, 0, 0, {-1, 1}), FrameStatus::kDuplicate);
}

TEST(FactorBroadcastSyncerTest, AWorkerAloneIsFreshAtOnce) {
  auto plan = MakeContext()->plan;
  plan.mutable_plan()->set_workers(1);
  const auto context =
      std::make_shared<SyncContext>(plan, std::make_shared<ModelMemory>(plan, false));
  FactorBroadcastSyncer syncer(context, 1);
  Outbox outbox;
  EXPECT_EQ(syncer.PublishInitial({}, outbox), FrameStatus::kComplete);
  for (const int64_t iteration : {0, 1}) {
    EXPECT_EQ(syncer.Send(iteration, outbox), FrameStatus::kAccepted);
    FinishWork(outbox);
    EXPECT_EQ(syncer.fresh_iteration(), iteration + 1);
  }
  EXPECT_TRUE(outbox.messages.empty());
}

TEST(RebuildTest, EqualsTheSumOfOuterProducts) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int i = 0; i < 50; ++i) {
    const int64_t outputs = 1 + static_cast<int64_t>(random() % 40);
    const int64_t inputs = 1 + static_cast<int64_t>(random() % 40);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 30);
    const bool bias = random() % 2 == 0;
    std::vector<float> u(rows * outputs);
    std::vector<float> v(rows * inputs);
    for (float& x : u) x = uniform(random);
    for (float& x : v) x = uniform(random);
    std::vector<float> gradient(outputs * inputs + (bias ? outputs : 0), NAN);
    RebuildGradient(outputs, inputs, u, v, gradient);
    for (int64_t o = 0; o < outputs; ++o) {
      double column = 0;
      for (int64_t row = 0; row < rows; ++row) column += u[row * outputs + o];
      if (bias) {
        ASSERT_NEAR(gradient[outputs * inputs + o], column, 1e-5);
      }
      for (int64_t n = 0; n < inputs; ++n) {
        double sum = 0;
        for (int64_t row = 0; row < rows; ++row) {
          sum += double{u[row * outputs + o]} * double{v[row * inputs + n]};
        }
        ASSERT_NEAR(gradient[o * inputs + n], sum, 1e-5);
      }
    }
  }
}

// Over many blocks, with sizes that no block divides, at rows for which blocks are wide and narrow.
TEST(RebuildTest, IsCutIntoShortSlices) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> uniform(-1, 1);
  constexpr int64_t kOutputs = 333;
  constexpr int64_t kInputs = 700;
  for (const int64_t rows : {100, 1500}) {
    std::vector<float> u(rows * kOutputs);
    std::vector<float> v(rows * kInputs);
    for (float& x : u) x = uniform(random);
    for (float& x : v) x = uniform(random);
    std::vector<float> whole(kOutputs * kInputs + kOutputs);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, kOutputs, kInputs, static_cast<int>(rows),
                1.0F, u.data(), kOutputs, v.data(), kInputs, 0.0F, whole.data(), kInputs);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t o = 0; o < kOutputs; ++o) whole[kOutputs * kInputs + o] += u[row * kOutputs + o];
    }
    std::vector<float> gradient(whole.size(), NAN);
    const SlicedArithmetic sliced = SlicedRebuild(kOutputs, kInputs, rows, u, v, gradient);
    const double operations = 2.0 * static_cast<double>(rows * kOutputs * kInputs);
    EXPECT_EQ(sliced.amount.operations, operations);
    EXPECT_GE(static_cast<double>(sliced.slices), operations / kSliceOperations);
    for (int64_t slice = sliced.slices; slice-- > 0;) sliced.run(slice);
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(gradient[i], whole[i], 1e-3) << i;
    EXPECT_FALSE(SlicedRebuild(kOutputs, kInputs, rows, {}, {}, {}).run);
  }
}

TEST(SlicedUpdateTest, HasTheBitsOfTheWhole) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  UpdateRule rule;
  rule.momentum = 0.9F;
  rule.weight_decay = 0.01F;
  constexpr int64_t kFloats = 3 * kSliceFloats + 17;
  const std::vector<UpdateSegment> segments = {
      {1000, {2, 0}}, {kFloats - 1001, {1, 1}}, {1, {3, 1}}};
  std::vector<float> gradient(kFloats);
  std::vector<float> values(kFloats);
  for (float& x : gradient) x = uniform(random);
  for (float& x : values) x = uniform(random);
  std::vector<float> state(kFloats);
  std::vector<float> sliced_values = values;
  std::vector<float> sliced_state = state;
  UpdateSegmentwise(rule, 5, segments, gradient, 0.5F, values, state);
  const auto update = [&](int64_t offset, int64_t size) {
    UpdateSegmentwise(rule, 5, CutSegments(segments, offset, size),
                      std::span(gradient).subspan(offset, size), 0.5F,
                      std::span(sliced_values).subspan(offset, size),
                      std::span(sliced_state).subspan(offset, size));
  };
  const SlicedArithmetic sliced = SlicedUpdate(kFloats, update);
  EXPECT_EQ(sliced.slices, 4);
  EXPECT_EQ(sliced.amount.updated, kFloats);
  for (int64_t slice = 0; slice < sliced.slices; ++slice) sliced.run(slice);
  EXPECT_EQ(sliced_values, values);
  EXPECT_EQ(sliced_state, state);
}

TEST(FactorBroadcastSyncerTest, PassesFactorsOnAroundTheRing) {
  const auto context = MakeContext(true);
  FactorBroadcastSyncer syncer(context, 1);
  Outbox outbox;
  const auto receive = [&](int sender, int worker) {
    return syncer.Receive(Frame(MessageKind::kFactors, Worker(sender), 0, 2 * worker, {1, 2}),
                          outbox);
  };
  EXPECT_EQ(receive(2, 2), FrameStatus::kInvalid);   // worker 1's left is worker 0
  EXPECT_EQ(receive(0, 1), FrameStatus::kInvalid);   // its own
  EXPECT_EQ(receive(0, 2), FrameStatus::kAccepted);  // worker 2 is the right, which has its own
  EXPECT_TRUE(outbox.messages.empty());
  EXPECT_EQ(receive(0, 0), FrameStatus::kAccepted);
  ASSERT_EQ(outbox.messages.size(), 1u);
  EXPECT_EQ(outbox.messages[0].to.node, Worker(2));
  EXPECT_EQ(outbox.messages[0].chunk, 0u);
  EXPECT_EQ(receive(0, 0), FrameStatus::kDuplicate);
  EXPECT_EQ(syncer.PublishInitial({}, outbox), FrameStatus::kComplete);
  outbox.messages.clear();
  EXPECT_EQ(syncer.Send(0, outbox), FrameStatus::kAccepted);
  ASSERT_EQ(outbox.messages.size(), 2u);
  EXPECT_EQ(outbox.messages[1].to.node, Worker(2));
  EXPECT_EQ(outbox.messages[1].chunk, 3u);
  EXPECT_EQ(context->traffic[1].bytes_sent, 8 + 8 + 12);
}

// Layers 0 and 1 in one bucket, layer 2 alone; the first bucket has parts on two lanes.
Plan TwoBuckets() {
  Plan plan;
  plan.set_lanes(2);
  for (const int layers : {2, 1}) {
    BucketPlan* bucket = plan.add_buckets();
    bucket->set_scheme(PS);
    bucket->set_layer_count(layers);
    for (int lane = 0; lane < layers; ++lane) bucket->add_chunks()->set_lane(lane);
  }
  return plan;
}

TEST(BucketProgressTest, ABucketIsFreshWhenAllItsLanesAre) {
  const Plan plan = TwoBuckets();
  EXPECT_EQ(PartsOfBucket(plan, 0), 2);
  EXPECT_EQ(PartsOfBucket(plan, 1), 1);
  BucketProgress progress(plan);
  EXPECT_FALSE(progress.IsFresh(0, 0));
  EXPECT_FALSE(progress.Report(0, 0, {}));
  EXPECT_FALSE(progress.IsFresh(0, 0));
  EXPECT_TRUE(progress.Report(0, 0, {}));
  EXPECT_TRUE(progress.IsFresh(0, 0));
  EXPECT_TRUE(progress.IsFresh(1, 0));
  EXPECT_FALSE(progress.IsFresh(1, 1));
  EXPECT_FALSE(progress.IsFresh(2, 0));
  EXPECT_TRUE(progress.Report(1, 0, {}));
  EXPECT_TRUE(progress.Report(1, 1, {}));
  EXPECT_TRUE(progress.IsFresh(2, 1));
}

TEST(BucketProgressTest, SendsABucketWithItsLastLayerAndTimesIt) {
  BucketProgress progress(TwoBuckets());
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    const Time now = Seconds(10.0 * static_cast<double>(iteration));
    EXPECT_THAT(progress.LayerReady(2, now), ElementsAre(1));
    EXPECT_THAT(progress.LayerReady(1, now), IsEmpty());
    EXPECT_THAT(progress.LayerReady(0, now), ElementsAre(0));
    progress.Report(1, iteration, now + Seconds(iteration == 0 ? 5 : 1));
    progress.Report(0, iteration, now + Seconds(1));
    progress.Report(0, iteration, now + Seconds(2));
  }
  wire::WorkerReport report;
  report.add_buckets();
  report.add_buckets();
  progress.AddTimes(report);
  // Iteration 0 is when the initial values came.
  EXPECT_EQ(report.buckets(0).exchanges(), 1);
  EXPECT_DOUBLE_EQ(report.buckets(0).exchange_seconds(), 2);
  EXPECT_DOUBLE_EQ(report.buckets(1).exchange_seconds(), 1);
}

TEST(BucketProgressTest, WithoutOverlapAllGoTogether) {
  Plan plan = TwoBuckets();
  plan.set_no_overlap(true);
  plan.set_wait_for_all(true);
  BucketProgress progress(plan);
  EXPECT_THAT(progress.LayerReady(2, {}), IsEmpty());
  EXPECT_THAT(progress.LayerReady(1, {}), IsEmpty());
  EXPECT_THAT(progress.LayerReady(0, {}), ElementsAre(1, 0));
  EXPECT_TRUE(progress.Report(1, 0, {}));
  EXPECT_FALSE(progress.IsFresh(2, 0));
  progress.Report(0, 0, {});
  progress.Report(0, 0, {});
  EXPECT_TRUE(progress.IsFresh(2, 0));
}

TEST(SyncLaneTest, TakesFramesOfItsEpochAndOfBucketsItHas) {
  const auto context = MakeContext();
  SyncLane lane(context, 1, nullptr);
  Envelope values = Frame(MessageKind::kValues, Server(1), 0, 1, {8, 9});
  Outbox outbox;
  ++values.epoch;
  lane.OnMessage(values, outbox);
  EXPECT_EQ(context->dropped_frames, 1);
  --values.epoch;
  values.bucket = 2;
  lane.OnMessage(values, outbox);
  EXPECT_EQ(context->dropped_frames, 2);
  EXPECT_TRUE(outbox.messages.empty());
  values.bucket = 0;
  lane.OnMessage(values, outbox);
  ASSERT_EQ(outbox.messages.size(), 1u);
  EXPECT_EQ(outbox.messages[0].kind, MessageKind::kBucketFresh);
  EXPECT_EQ(outbox.messages[0].to, Here(kApplicationLane));
  EXPECT_EQ(outbox.messages[0].iteration, 0);
  lane.OnMessage(values, outbox);
  EXPECT_EQ(context->dropped_frames, 3);
  EXPECT_EQ(outbox.messages.size(), 1u);
}

// A program may hear of a hold just after it has looked, and post what was the plan's before to the
// lanes of the next.
TEST(SyncLaneTest, IgnoresWhatTheProgramPostedUnderThePlanBefore) {
  const auto context = MakeContext();
  SyncLane lane(context, 1, nullptr);
  for (const MessageKind kind : {MessageKind::kPublishInitial, MessageKind::kGradientReady,
                                 MessageKind::kCollectOptimizerState}) {
    Envelope posted;
    posted.kind = kind;
    posted.bucket = 0;
    Outbox outbox;
    posted.epoch = context->epoch - 1;
    lane.OnMessage(posted, outbox);
    EXPECT_TRUE(outbox.messages.empty()) << KindName(kind);
  }
  EXPECT_EQ(context->dropped_frames, 0);  // it was no frame of another node's
}

TEST(SyncLaneTest, WaitsLongerForServersThanServersForWorkers) {
  const auto context = MakeContext();
  context->stall_deadline = Seconds(10);
  const auto late_scan = [&](SyncLane& lane, double seconds) {
    Outbox outbox;
    outbox.now = Seconds(seconds);
    lane.OnTimer(1, outbox);
    EXPECT_EQ(outbox.timers.size(), 1u) << "it looks no more";
    if (outbox.messages.empty()) return std::string();
    wire::Stalled stalled;
    EXPECT_TRUE(stalled.ParseFromString(outbox.messages[0].body.ToString()));
    return stalled.waiting_for();
  };
  double last = 0;  // scan, each of which has come in time
  const auto scan = [&](SyncLane& lane, double seconds) {
    for (last += 1; last < seconds; last += 1) late_scan(lane, last);
    last = seconds;
    return late_scan(lane, seconds);
  };
  Envelope training;
  training.kind = MessageKind::kTraining;
  Outbox outbox;
  const auto begin = [&](SyncLane& lane) {
    outbox.now = Seconds(last = 100);
    lane.OnStart(outbox);
    lane.OnMessage(training, outbox);
  };
  SyncLane servers_only(context, 0, nullptr);
  EXPECT_EQ(scan(servers_only, 1000), "");  // training has not begun
  begin(servers_only);
  EXPECT_EQ(scan(servers_only, 114), "");
  EXPECT_EQ(scan(servers_only, 115), "the initial values of layer conv");
  EXPECT_EQ(scan(servers_only, 116), "the initial values of layer conv");  // to a later scheduler
  SyncLane both(context, 1, nullptr);
  begin(both);
  EXPECT_EQ(scan(both, 109), "");
  EXPECT_EQ(scan(both, 110), "the initial values of layer fc");
  // What the process stood still does not count.
  SyncLane stopped(context, 1, nullptr);
  begin(stopped);
  EXPECT_EQ(late_scan(stopped, 101), "");
  EXPECT_EQ(late_scan(stopped, 1102), "") << "after a stop of 1000 s";
  last = 1102;
  EXPECT_EQ(scan(stopped, 1109), "");
  EXPECT_EQ(scan(stopped, 1110), "the initial values of layer fc");
  // Before its first scan, and a message comes before the late one: who is waited for since then is
  // named in time.
  SyncLane woken(context, 1, nullptr);
  outbox.now = Seconds(100);
  woken.OnStart(outbox);
  outbox.now = Seconds(last = 1100);
  woken.OnMessage(training, outbox);
  EXPECT_EQ(scan(woken, 1109), "");
  EXPECT_EQ(scan(woken, 1110), "the initial values of layer fc");
}

}  // namespace
}  // namespace poseidon
