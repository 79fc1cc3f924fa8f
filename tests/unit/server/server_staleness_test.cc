// Bulk-synchronous, stale and asynchronous shards against simulations in double that know nothing
// of sums, clocks or pools: only which gradients have come, in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

using Doubles = std::vector<double>;

constexpr double kRate = 0.5;
constexpr double kMomentum = 0.5;

// values -= optimizer_state, one step of SGD by `gradient` at `rate`.
void Step(const Doubles& gradient, double rate, Doubles& values, Doubles& optimizer_state) {
  for (size_t i = 0; i < values.size(); ++i) {
    optimizer_state[i] = kMomentum * optimizer_state[i] + rate * gradient[i];
    values[i] -= optimizer_state[i];
  }
}

// All gradients that have come, and what the parameters must be.
class Model {
 public:
  Model(int workers, const Floats& initial)
      : initial_(initial.begin(), initial.end()), gradients_(workers) {}

  void Arrive(int worker, const Floats& gradient) {
    gradients_[worker].emplace_back(gradient.begin(), gradient.end());
    order_.push_back(gradients_[worker].back());
  }
  int64_t clock(int worker) const { return static_cast<int64_t>(gradients_[worker].size()); }
  // Iterations of which all gradients have come.
  int64_t complete() const {
    int64_t complete = clock(0);
    for (size_t w = 1; w < gradients_.size(); ++w) complete = std::min(complete, clock(w));
    return complete;
  }
  // Whether the worker may have the values of its next iteration.
  bool MayGoOn(int worker, int staleness) const {
    return staleness < 0 || complete() >= clock(worker) - staleness;
  }
  Doubles Values(int staleness) const {
    Doubles values = initial_;
    Doubles optimizer_state(values.size());
    const double share = 1.0 / static_cast<double>(gradients_.size());
    if (staleness < 0) {
      for (const Doubles& gradient : order_) Step(gradient, kRate * share, values, optimizer_state);
      return values;
    }
    for (int64_t t = 0; t < complete(); ++t) {
      Doubles mean(values.size());
      for (const auto& of_worker : gradients_) {
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += of_worker[t][i] * share;
      }
      Step(mean, kRate, values, optimizer_state);
    }
    return values;
  }

 private:
  Doubles initial_;
  std::vector<std::vector<Doubles>> gradients_;  // by worker and iteration
  std::vector<Doubles> order_;                   // as they came
};

void ExpectNear(const Payload& body, const Doubles& expected) {
  const Floats values = FloatsOf(body);
  ASSERT_EQ(values.size(), expected.size());
  // A few dozen additions of numbers of about 1.
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 2e-5);
}

// Workers that compute for random times, whose frames may come twice, late.
class Training {
 public:
  Training(int workers, int staleness, bool deterministic, unsigned seed)
      : workers_(workers),
        staleness_(staleness),
        random_(seed),
        size_(1 + static_cast<int64_t>(random_() % 9)),
        initial_(RandomFloats(size_, random_)),
        model_(workers, initial_),
        shard_(MakePlan(deterministic)),
        values_(workers) {}

  void Run(int64_t iterations) {
    Check(shard_.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(initial_))), -1);
    for (int64_t steps = iterations * workers_; steps > 0; --steps) {
      std::vector<int> ready;
      for (int w = 0; w < workers_; ++w) {
        if (values_[w]) ready.push_back(w);
      }
      ASSERT_FALSE(ready.empty()) << "nobody can go on";
      // Low ranks are faster, so that the distance comes to its limit.
      Contribute(ready[random_() % (random_() % 2 == 0 ? ready.size() : 1)]);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const auto& [body, bytes] : under_way_) EXPECT_EQ(FloatsOf(body), bytes);
  }
  int64_t largest_lead() const { return largest_lead_; }
  int64_t duplicates() const { return duplicates_; }
  int64_t dropped() { return shard_->dropped_frames(); }

 private:
  wire::PlanAndModel MakePlan(bool deterministic) const {
    wire::PlanAndModel plan = EmptyPlan(workers_);
    plan.mutable_plan()->set_staleness(staleness_);
    plan.mutable_plan()->set_deterministic(deterministic);
    AddBucket(plan, "a", {size_});
    return plan;
  }

  // The worker's gradient depends on the values it has, and comes at once.
  void Contribute(int worker) {
    Floats gradient = RandomFloats(size_, random_);
    for (int64_t i = 0; i < size_; ++i) gradient[i] += 0.25F * (*values_[worker])[i];
    values_[worker].reset();
    const int64_t iteration = model_.clock(worker);
    const Envelope frame = ShardFrame(MessageKind::kGradient, worker, iteration, Body(gradient));
    model_.Arrive(worker, gradient);
    largest_lead_ = std::max(largest_lead_, iteration - model_.complete());
    sent_.push_back(frame);
    Check(shard_.Receive(frame), worker);
    if (random_() % 3 == 0) {
      ++duplicates_;
      EXPECT_TRUE(shard_.Receive(sent_[random_() % sent_.size()]).empty());
    }
  }

  // Those who were waiting and may go on now, and nobody else, have the values of their iteration.
  void Check(const std::vector<Envelope>& answers, int sender) {
    std::vector<int> expected;
    for (int w = 0; w < workers_; ++w) {
      if (!values_[w] && model_.MayGoOn(w, staleness_)) expected.push_back(w);
    }
    std::vector<int> answered;
    for (const Envelope& answer : answers) {
      const int worker = answer.to.node.rank;
      answered.push_back(worker);
      EXPECT_EQ(answer.kind, MessageKind::kValues);
      EXPECT_EQ(answer.iteration, model_.clock(worker));
      ExpectNear(answer.body, model_.Values(staleness_));
      values_[worker] = FloatsOf(answer.body);
      // Without staleness a frame is gone before its values change.
      if (staleness_ != 0) under_way_.emplace_back(answer.body, FloatsOf(answer.body));
    }
    EXPECT_THAT(answered, testing::ElementsAreArray(expected)) << "after " << sender;
  }

  int workers_;
  int staleness_;
  std::mt19937 random_;
  int64_t size_;
  Floats initial_;
  Model model_;
  ShardUnderTest shard_;
  std::vector<std::optional<Floats>> values_;  // of workers that compute; by rank
  std::vector<Envelope> sent_;
  std::vector<std::pair<Payload, Floats>> under_way_;
  int64_t largest_lead_ = 0;
  int64_t duplicates_ = 0;
};

TEST(ServerStalenessTest, EveryStalenessIsASimulationInDouble) {
  for (const int staleness : {0, 1, 2, 3, 7}) {
    int64_t largest_lead = 0;
    for (unsigned seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE("staleness " + std::to_string(staleness) + ", seed " + std::to_string(seed));
      Training training(1 + static_cast<int>(seed % 6), staleness, seed % 4 < 2, seed);
      training.Run(25);
      ASSERT_FALSE(HasFailure());
      EXPECT_EQ(training.dropped(), training.duplicates());
      largest_lead = std::max(largest_lead, training.largest_lead());
    }
    EXPECT_EQ(largest_lead, staleness);
  }
}

TEST(ServerStalenessTest, AsynchronousIsASerialApplicationInOrderOfArrival) {
  int64_t largest_lead = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training training(1 + static_cast<int>(seed % 6), -1, false, seed);
    training.Run(25);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(training.dropped(), training.duplicates());
    largest_lead = std::max(largest_lead, training.largest_lead());
  }
  EXPECT_GT(largest_lead, 10);
}

// Nobody waits for a worker that hangs under staleness -1, but it is noticed.
TEST(ServerStalenessTest, AnAsynchronousWorkerThatFallsSilentIsNamed) {
  KvPair::Options options;
  options.workers = 3;
  options.staleness = -1;
  options.iterations = 2;
  KvPair pair(options, 1, {{1, {}}}, {});
  AccumulatorPool pool(0, 1);
  const UpdateRule rule;
  EXPECT_TRUE(pair.Initialize(Payload::Phantom(sizeof(float))));
  EXPECT_FALSE(pair.open());
  const auto add = [&](int worker, int64_t iteration, double seconds) {
    pair.Add(worker, iteration, Payload::Phantom(sizeof(float)), Seconds(seconds), rule, pool);
  };
  add(0, 0, 10);
  EXPECT_TRUE(pair.open());
  add(1, 0, 12);
  add(0, 1, 15);  // its last
  EXPECT_EQ(pair.open_since(), Time(Seconds(10)));
  EXPECT_THAT(pair.missing(), testing::ElementsAre(2));  // has never sent any
  add(2, 0, 20);
  EXPECT_EQ(pair.open_since(), Time(Seconds(12)));
  EXPECT_THAT(pair.missing(), testing::ElementsAre(1));
  add(1, 1, 21);
  add(2, 1, 22);
  EXPECT_FALSE(pair.open());
  EXPECT_THAT(pair.missing(), testing::IsEmpty());
}

TEST(ServerStalenessTest, AnAsynchronousStallNamesTheIterationOfWhoIsMissing) {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_staleness(-1);
  AddBucket(plan, "a", {1});
  ShardUnderTest shard(plan);
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
  const auto send = [&shard](int worker, int64_t iteration) {
    shard.Receive(ShardFrame(MessageKind::kGradient, worker, iteration, Body({1})));
  };
  for (int64_t iteration = 0; iteration < 2; ++iteration) send(1, iteration);
  EXPECT_EQ(shard.Scan(5), "");
  for (int64_t iteration = 0; iteration < 10; ++iteration) send(0, iteration);
  EXPECT_EQ(shard.Scan(11), "the gradient of layer a, iteration 2, 1");
}

// After the last iteration the fast wait for the slow, so that all end with the same.
TEST(ServerStalenessTest, WhoHasEndedIsAnsweredWithAllOthers) {
  for (const int staleness : {-1, 5}) {
    SCOPED_TRACE(staleness);
    wire::PlanAndModel plan = EmptyPlan(2);
    plan.mutable_plan()->set_staleness(staleness);
    plan.mutable_model()->set_iterations(2);
    AddBucket(plan, "a", {1});
    ShardUnderTest shard(plan);
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
    const auto answered = [&](int worker, int64_t iteration) {
      std::vector<int> workers;
      for (const Envelope& answer :
           shard.Receive(ShardFrame(MessageKind::kGradient, worker, iteration, Body({1})))) {
        workers.push_back(answer.to.node.rank);
      }
      return workers;
    };
    EXPECT_THAT(answered(0, 0), testing::ElementsAre(0));
    EXPECT_THAT(answered(0, 1), testing::IsEmpty());
    EXPECT_THAT(answered(1, 0), testing::ElementsAre(1));
    EXPECT_THAT(answered(1, 1), testing::ElementsAre(0, 1));
  }
}

// The rule's iteration is the worker's own: a rate that halves each iteration.
TEST(ServerStalenessTest, AsynchronousWorkersHaveTheLearningRateOfTheirOwnIteration) {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_staleness(-1);
  UpdateRuleSpec* rule = plan.mutable_model()->mutable_update_rule();
  rule->set_momentum(0);
  rule->set_lr_policy("exp");
  rule->set_gamma(0.5F);
  AddBucket(plan, "a", {1});
  ShardUnderTest shard(plan);
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
  constexpr float kShare = 0.5F * 0.5F;  // base_lr / workers
  std::vector<int64_t> clocks(2);
  float expected = 0;
  for (const int worker : {0, 0, 0, 1, 0, 1}) {
    const int64_t iteration = clocks[worker]++;
    expected -= std::ldexp(kShare, -static_cast<int>(iteration));
    const std::vector<Envelope>& sent =
        shard.Receive(ShardFrame(MessageKind::kGradient, worker, iteration, Body({1})));
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].to.node.rank, worker);
    EXPECT_EQ(sent[0].iteration, iteration + 1);
    EXPECT_EQ(FloatsOf(sent[0].body), Floats{expected});
  }
}

// Each gradient is one more that Adam's moments have seen. Of gradients that are all 1 the
// corrected moments are 1, too, so that each moves the value by a worker's share of the rate.
TEST(ServerStalenessTest, AsynchronousAdamCountsGradients) {
  constexpr int kWorkers = 4;
  constexpr double kRateShare = 0.5 / kWorkers;
  for (const int start : {0, 3}) {
    SCOPED_TRACE(start);
    wire::PlanAndModel plan = EmptyPlan(kWorkers);
    plan.mutable_plan()->set_staleness(-1);
    plan.mutable_plan()->set_start_iteration(start);
    UpdateRuleSpec* rule = plan.mutable_model()->mutable_update_rule();
    rule->set_type("Adam");
    rule->set_momentum(0.9F);
    rule->set_momentum2(0.999F);
    rule->set_delta(1e-12F);
    AddBucket(plan, "a", {1});
    ShardUnderTest shard(plan);
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, start, Body({0})));
    if (start > 0) {
      const int gradients = kWorkers * start;
      const Floats moments = {static_cast<float>(1 - std::pow(0.9, gradients)),
                              static_cast<float>(1 - std::pow(0.999, gradients))};
      shard.Receive(ShardFrame(MessageKind::kInitialOptimizerState, 0, start, Body(moments)));
    }
    int updates = 0;
    for (int64_t iteration = start; iteration < start + 50; ++iteration) {
      for (int worker = 0; worker < kWorkers; ++worker) {
        const std::vector<Envelope>& sent =
            shard.Receive(ShardFrame(MessageKind::kGradient, worker, iteration, Body({1})));
        ASSERT_EQ(sent.size(), 1u);
        ++updates;
        // The second moment is a difference of 1 and a number near 1 in floats at first.
        EXPECT_NEAR(FloatsOf(sent[0].body)[0] / (-updates * kRateShare), 1, 1e-3);
      }
    }
  }
}

TEST(ServerStalenessTest, FramesTooFarAheadAreForeign) {
  for (const int staleness : {-1, 0, 2}) {
    wire::PlanAndModel plan = EmptyPlan(2);
    plan.mutable_plan()->set_staleness(staleness);
    AddBucket(plan, "a", {1});
    ShardUnderTest shard(plan);
    const auto gradient = [&](int64_t iteration) {
      const int64_t before = shard->dropped_frames();
      shard.Receive(ShardFrame(MessageKind::kGradient, 0, iteration, Body({1})));
      return shard->dropped_frames() == before;
    };
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
    EXPECT_FALSE(gradient(1));  // before its own iteration 0
    for (int64_t t = 0; t <= staleness; ++t) EXPECT_TRUE(gradient(t)) << t;
    // It has had no answer; without synchronization one to each gradient.
    EXPECT_EQ(gradient(staleness + 1), staleness < 0);
    EXPECT_FALSE(gradient(std::numeric_limits<int64_t>::max()));
    EXPECT_FALSE(gradient(std::numeric_limits<int64_t>::min()));
  }
}

TEST(CopyPoolTest, UsesBuffersAgainWhenTheirFramesAreGone) {
  std::optional<CopyPool> pool(8);
  const Floats floats = {1, 2};
  for (int i = 0; i < 5; ++i) {
    const Payload one = pool->Copy(std::as_bytes(std::span(floats)));
    const Payload two = pool->Copy(std::as_bytes(std::span(floats)).first(4));
    EXPECT_EQ(FloatsOf(one), floats);
    EXPECT_EQ(FloatsOf(two), Floats{1});
    EXPECT_NE(one.bytes().data(), two.bytes().data());
  }
  EXPECT_EQ(pool->buffers(), 2u);
  const Payload survivor = pool->Copy(std::as_bytes(std::span(floats)));
  pool.reset();
  EXPECT_EQ(FloatsOf(survivor), floats);
}

}  // namespace
}  // namespace poseidon
