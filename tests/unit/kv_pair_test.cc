#include "server/kv_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace poseidon {
namespace {

using Outcome = KvPair::Outcome;
using Floats = std::vector<float>;

Payload Body(const Floats& floats) {
  auto owned = std::make_shared<Floats>(floats);
  return Payload::View(std::span<const float>(*owned), owned);
}

UpdateRule PlainRule() {
  UpdateRule rule;
  rule.base_lr = 0.1F;
  return rule;
}

// A pair with memory of its own.
struct Pair {
  Pair(int workers, bool deterministic, int64_t size)
      : values(size),
        history(size),
        pool(1, size),
        pair({workers, deterministic}, size, {{size, {}}}, values, history) {}

  Outcome Add(int worker, int64_t iteration, const Floats& gradient, Time now = {}) {
    return pair.Add(worker, iteration, Body(gradient), now, pool);
  }

  Floats values;
  Floats history;
  AccumulatorPool pool;
  KvPair pair;
};

TEST(KvPairTest, CountsEachWorkerOnceAnIteration) {
  Pair pair(2, false, 1);
  EXPECT_EQ(pair.Add(0, 0, {1}), Outcome::kForeign);  // nothing to add to yet
  EXPECT_FALSE(pair.pair.Initialize(Body({1, 2})));   // too long
  EXPECT_TRUE(pair.pair.Initialize(Body({5})));
  EXPECT_FALSE(pair.pair.Initialize(Body({6})));
  EXPECT_FALSE(pair.pair.open());
  EXPECT_EQ(pair.Add(1, 0, {2}, Seconds(3)), Outcome::kCounted);
  EXPECT_TRUE(pair.pair.open());
  EXPECT_EQ(pair.pair.opened(), Seconds(3));
  EXPECT_THAT(pair.pair.missing(), testing::ElementsAre(0));
  EXPECT_EQ(pair.Add(1, 0, {2}, Seconds(4)), Outcome::kOld);
  EXPECT_EQ(pair.Add(0, 1, {2}), Outcome::kForeign);
  EXPECT_EQ(pair.Add(0, -1, {2}), Outcome::kOld);
  EXPECT_EQ(pair.Add(0, 0, {2, 3}), Outcome::kForeign);
  EXPECT_EQ(pair.pair.opened(), Seconds(3));
  EXPECT_EQ(pair.Add(0, 0, {4}), Outcome::kComplete);
  pair.pair.Update(PlainRule(), pair.pool);
  EXPECT_FLOAT_EQ(pair.values[0], 5 - 0.1F * (2 + 4) / 2);
  EXPECT_EQ(pair.pair.iteration(), 1);
  EXPECT_FALSE(pair.pair.open());
  EXPECT_EQ(pair.Add(0, 0, {4}), Outcome::kOld);
  EXPECT_EQ(pair.Add(0, 1, {4}), Outcome::kCounted);
}

// Numbers of very different sizes, so that any other order gives other bits.
TEST(KvPairTest, DeterministicSumsDoNotDependOnTheOrderOfArrival) {
  constexpr int kWorkers = 6;
  constexpr int64_t kSize = 37;
  std::mt19937 random(3);
  std::vector<Floats> gradients(kWorkers, Floats(kSize));
  for (Floats& gradient : gradients) {
    for (float& value : gradient) {
      value = std::ldexp(1.0F + static_cast<float>(random() % 1000) / 997,
                         static_cast<int>(random() % 40) - 20);
    }
  }
  std::vector<int> order(kWorkers);
  std::iota(order.begin(), order.end(), 0);
  std::vector<Floats> results;
  int differing = 0;
  for (const bool deterministic : {true, false}) {
    for (int shuffle = 0; shuffle < 50; ++shuffle) {
      Pair pair(kWorkers, deterministic, kSize);
      ASSERT_TRUE(pair.pair.Initialize(Body(Floats(kSize, 1))));
      for (int64_t iteration = 0; iteration < 3; ++iteration) {
        std::shuffle(order.begin(), order.end(), random);
        for (const int worker : order) pair.Add(worker, iteration, gradients[worker]);
        pair.pair.Update(PlainRule(), pair.pool);
      }
      results.push_back(pair.values);
      if (deterministic) {
        EXPECT_EQ(results.back(), results.front());
      } else if (results.back() != results.front()) {
        ++differing;
      }
    }
  }
  EXPECT_GT(differing, 25);
}

TEST(KvPairTest, BlobsOfAChunkHaveTheirOwnMultipliers) {
  Floats values = {1, 1, 1};
  Floats history(3);
  AccumulatorPool pool(1, 3);
  KvPair pair({1, false}, 3, {{1, {1, 1}}, {2, {2, 0}}}, values, history);
  ASSERT_TRUE(pair.Initialize(Body({1, 1, 1})));
  UpdateRule rule = PlainRule();
  rule.weight_decay = 1;
  ASSERT_EQ(pair.Add(0, 0, Body({1, 1, 1}), {}, pool), Outcome::kComplete);
  pair.Update(rule, pool);
  EXPECT_FLOAT_EQ(values[0], 1 - 0.1F * (1 + 1));
  EXPECT_FLOAT_EQ(values[1], 1 - 0.2F);
  EXPECT_FLOAT_EQ(values[2], 1 - 0.2F);
}

TEST(KvPairTest, PhantomsCountAndHoldNothing) {
  AccumulatorPool pool(0, 0);
  KvPair pair({2, true}, 10, {{10, {}}}, {}, {});
  EXPECT_TRUE(pair.Initialize(Payload::Phantom(40)));
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    EXPECT_EQ(pair.Add(1, iteration, Payload::Phantom(40), {}, pool), Outcome::kCounted);
    EXPECT_EQ(pair.Add(0, iteration, Payload::Phantom(36), {}, pool), Outcome::kForeign);
    EXPECT_EQ(pair.Add(0, iteration, Payload::Phantom(40), {}, pool), Outcome::kComplete);
    pair.Update(PlainRule(), pool);
  }
  EXPECT_EQ(pair.iteration(), 3);
}

TEST(AccumulatorPoolTest, LendsSeparateAlignedBuffers) {
  AccumulatorPool pool(3, 5);
  std::vector<std::span<float>> buffers;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(pool.Borrow(5));
    EXPECT_EQ(buffers.back().size(), 5u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % 64, 0u);
    std::fill(buffers.back().begin(), buffers.back().end(), static_cast<float>(i));
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(buffers[i][4], static_cast<float>(i));
  pool.Return(buffers[1]);
  EXPECT_EQ(pool.Borrow(2).data(), buffers[1].data());  // last in, first out
  EXPECT_EQ(pool.most_borrowed(), 3u);
}

}  // namespace
}  // namespace poseidon
