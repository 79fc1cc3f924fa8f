#include "server/kv_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/arithmetic/sum.h"
#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

UpdateRule PlainRule() {
  UpdateRule rule;
  rule.base_lr = 0.1F;
  return rule;
}

// A pair with memory of its own.
struct Pair {
  Pair(const KvPair::Options& options, std::vector<UpdateSegment> segments)
      : size(std::accumulate(segments.begin(), segments.end(), int64_t{0},
                             [](int64_t sum, const auto& segment) { return sum + segment.size; })),
        memory(KvPair::MemoryFloats(options, rule, size)),
        pool(KvPair::OpenIterations(options.staleness) + 1, size),
        pair(options, size, std::move(segments), memory) {}

  // Workers answered; -1 if the gradient was old, -2 if it was foreign.
  std::vector<int> Add(int worker, int64_t iteration, const Floats& gradient, Time now = {}) {
    const GatherResult reaction = pair.Add(worker, iteration, Body(gradient), now, rule, pool);
    if (reaction.status == FrameStatus::kAccepted) return reaction.answer;
    EXPECT_THAT(reaction.answer, IsEmpty());
    return {reaction.status == FrameStatus::kDuplicate ? -1 : -2};
  }
  Floats values() const {
    Floats floats(size);
    CopyFrom(floats, pair.answer());
    return floats;
  }

  UpdateRule rule = PlainRule();
  int64_t size;
  Floats memory;
  AccumulatorPool pool;
  KvPair pair;
};

TEST(KvPairTest, CountsEachWorkerOnceAnIteration) {
  Pair pair({.workers = 2, .codec = {}}, {{1, {}}});
  EXPECT_THAT(pair.Add(0, 0, {1}), ElementsAre(-2));  // nothing to add to yet
  EXPECT_FALSE(pair.pair.Initialize(Body({1, 2})));   // too long
  EXPECT_TRUE(pair.pair.Initialize(Body({5})));
  EXPECT_FALSE(pair.pair.Initialize(Body({6})));
  EXPECT_FALSE(pair.pair.open());
  EXPECT_THAT(pair.Add(1, 0, {2}, Seconds(3)), IsEmpty());
  EXPECT_TRUE(pair.pair.open());
  EXPECT_EQ(pair.pair.open_since(), Seconds(3));
  EXPECT_THAT(pair.pair.missing(), ElementsAre(0));
  EXPECT_THAT(pair.Add(1, 0, {2}, Seconds(4)), ElementsAre(-1));
  EXPECT_THAT(pair.Add(1, 1, {2}), ElementsAre(-2));
  EXPECT_THAT(pair.Add(0, 1, {2}), ElementsAre(-2));
  EXPECT_THAT(pair.Add(0, -1, {2}), ElementsAre(-1));
  EXPECT_THAT(pair.Add(0, 0, {2, 3}), ElementsAre(-2));
  EXPECT_EQ(pair.pair.open_since(), Seconds(3));
  EXPECT_THAT(pair.Add(0, 0, {4}), ElementsAre(0, 1));
  EXPECT_FLOAT_EQ(pair.values()[0], 5 - 0.1F * (2 + 4) / 2);
  EXPECT_EQ(pair.pair.iteration(), 1);
  EXPECT_FALSE(pair.pair.open());
  EXPECT_THAT(pair.Add(0, 0, {4}), ElementsAre(-1));
  EXPECT_THAT(pair.Add(0, 1, {4}), IsEmpty());
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
      // With staleness, two iterations are gathered side by side.
      const int staleness = shuffle % 2;
      Pair pair({.workers = kWorkers,
                 .deterministic = deterministic,
                 .staleness = staleness,
                 .codec = {}},
                {{kSize, {}}});
      ASSERT_TRUE(pair.pair.Initialize(Body(Floats(kSize, 1))));
      for (int64_t iteration = 0; iteration < 4; iteration += 1 + staleness) {
        std::vector<int> arrivals;
        for (int i = 0; i <= staleness; ++i) {
          arrivals.insert(arrivals.end(), order.begin(), order.end());
        }
        std::shuffle(arrivals.begin(), arrivals.end(), random);
        for (const int worker : arrivals) {
          pair.Add(worker, pair.pair.clock(worker), gradients[worker]);
        }
      }
      EXPECT_EQ(pair.pair.iteration(), 4);
      results.push_back(pair.values());
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
  Pair pair({.codec = {}}, {{1, {1, 1}}, {2, {2, 0}}});
  pair.rule.weight_decay = 1;
  ASSERT_TRUE(pair.pair.Initialize(Body({1, 1, 1})));
  ASSERT_THAT(pair.Add(0, 0, {1, 1, 1}), ElementsAre(0));
  EXPECT_FLOAT_EQ(pair.values()[0], 1 - 0.1F * (1 + 1));
  EXPECT_FLOAT_EQ(pair.values()[1], 1 - 0.2F);
  EXPECT_FLOAT_EQ(pair.values()[2], 1 - 0.2F);
}

TEST(KvPairTest, PhantomsCountAndHoldNothing) {
  AccumulatorPool pool(0, 0);
  const UpdateRule rule = PlainRule();
  for (const CodecType codec : {CodecType::kFp32, CodecType::kOneBit}) {
    const KvPair::Options options{.workers = 2,
                                  .deterministic = true,
                                  .update_at_workers = codec == CodecType::kOneBit,
                                  .codec = {codec, 0}};
    KvPair pair(options, 10, {{10, {}}}, {});
    const size_t bytes = EncodedBytes(options.codec, 10);
    EXPECT_TRUE(pair.Initialize(Payload::Phantom(40)));
    EXPECT_EQ(pair.answer_size(), 40u);
    const auto add = [&](int worker, int64_t iteration, size_t size) {
      return pair.Add(worker, iteration, Payload::Phantom(size), {}, rule, pool);
    };
    for (int64_t iteration = 0; iteration < 3; ++iteration) {
      EXPECT_EQ(add(1, iteration, bytes).status, FrameStatus::kAccepted);
      EXPECT_EQ(add(0, iteration, bytes - 4).status, FrameStatus::kInvalid);
      EXPECT_THAT(add(0, iteration, bytes).answer, ElementsAre(0, 1));
      EXPECT_EQ(pair.answer_size(), bytes);
      EXPECT_TRUE(pair.answer().empty());
    }
    EXPECT_EQ(pair.iteration(), 3);
  }
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
