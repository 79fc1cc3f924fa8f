// Servers that answer with the sum of the gradients, in every codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/arithmetic/codec.h"
#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

constexpr WireCodec kCodecs[] = {FP32, FP16, BF16, ONE_BIT, TOP_K, INT8};

wire::PlanAndModel SumPlan(int workers, WireCodec codec, int64_t size, bool deterministic) {
  wire::PlanAndModel plan = EmptyPlan(workers);
  plan.mutable_plan()->set_deterministic(deterministic);
  plan.mutable_plan()->set_top_k_share(0.25);
  BucketPlan& bucket = AddBucket(plan, "a", {size});
  bucket.set_update_at_workers(true);
  bucket.set_codec(codec);
  return plan;
}

Codec SpecOf(const wire::PlanAndModel& plan) {
  return CodecOf(plan.plan(), plan.plan().buckets(0));
}

Payload Packed(const Codec& spec, const Floats& values, Floats& residual) {
  std::string bytes(EncodedBytes(spec, static_cast<int64_t>(values.size())), '\0');
  const bool feedback = NeedsErrorFeedback(spec);
  Encode(spec, values, feedback ? std::span<float>(residual) : std::span<float>(),
         std::as_writable_bytes(std::span(bytes)));
  return Payload::FromString(std::move(bytes));
}

Floats Unpacked(const Codec& spec, const Payload& body, size_t size) {
  Floats floats(size);
  EXPECT_TRUE(Decode(spec, body.bytes(), floats));
  return floats;
}

// The answer to all workers of what `gradients` are packed to, sent in a random order.
Payload Exchange(ShardUnderTest& shard, int64_t iteration, const std::vector<Payload>& gradients,
                 std::mt19937& random) {
  std::vector<int> order(gradients.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Payload body;
  for (const int worker : order) {
    const Envelope frame = ShardFrame(MessageKind::kGradient, worker, iteration, gradients[worker]);
    const std::vector<Envelope> sent = shard.Receive(frame);
    EXPECT_EQ(sent.size(), worker == order.back() ? gradients.size() : 0u);
    for (const Envelope& answer : sent) {
      EXPECT_EQ(answer.kind, MessageKind::kGradientSum);
      EXPECT_EQ(answer.iteration, iteration + 1);
      body = answer.body;
    }
    EXPECT_TRUE(shard.Receive(frame).empty());
  }
  return body;
}

TEST(ServerCodecTest, AnswersWithThePackedSumAndItsResidual) {
  std::mt19937 random(5);
  for (const WireCodec codec : kCodecs) {
    for (const int64_t size : {1, 2, 7, 64, 1024, 1500}) {
      for (const bool deterministic : {true, false}) {
        const int workers = 1 + static_cast<int>(random() % 5);
        SCOPED_TRACE(CodecName(codec) + ", size " + std::to_string(size));
        const wire::PlanAndModel plan = SumPlan(workers, codec, size, deterministic);
        const Codec spec = SpecOf(plan);
        ShardUnderTest shard(plan);
        const Floats initial = RandomFloats(size, random);
        const auto& sent =
            shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(initial)));
        ASSERT_EQ(sent.size(), static_cast<size_t>(workers));
        EXPECT_EQ(sent[0].kind, MessageKind::kValues);
        EXPECT_EQ(FloatsOf(sent[0].body), initial);

        std::vector<Floats> residuals(workers, Floats(size));
        Floats server_residual(size);
        std::vector<double> sums(size);  // over all iterations: what came, less what went
        double largest_sum = 1;
        for (int64_t iteration = 0; iteration < 6; ++iteration) {
          std::vector<Payload> gradients;
          Floats sum(size);
          for (Floats& residual : residuals) {
            gradients.push_back(Packed(spec, RandomFloats(size, random), residual));
            const Floats gradient = Unpacked(spec, gradients.back(), size);
            for (int64_t i = 0; i < size; ++i) {
              sum[i] += gradient[i];
              sums[i] += gradient[i];
              largest_sum = std::max(largest_sum, std::abs(sums[i]));
            }
          }
          const Payload body = Exchange(shard, iteration, gradients, random);
          // In the order of ranks the serial sum to the bit.
          const Payload expected = Packed(spec, sum, server_residual);
          if (deterministic) {
            ASSERT_EQ(body.ToString(), expected.ToString());
          }
          const Floats answer = Unpacked(spec, body, size);
          for (int64_t i = 0; i < size; ++i) sums[i] -= answer[i];
        }
        // Nothing is lost but what the residual holds, and what rounding loses.
        const double rounding = codec == BF16 ? 0x1p-8 : codec == FP16 ? 0x1p-11 : 0x1p-21;
        if (!deterministic) continue;
        for (int64_t i = 0; i < size; ++i) {
          EXPECT_NEAR(sums[i], server_residual[i], 6 * workers * largest_sum * rounding);
        }
      }
    }
  }
}

// What top-k has held back at the server comes when nothing else does.
TEST(ServerCodecTest, AllOfTheSumArrivesInTheEnd) {
  constexpr int kWorkers = 3;
  constexpr int64_t kSize = 40;
  std::mt19937 random(6);
  const wire::PlanAndModel plan = SumPlan(kWorkers, TOP_K, kSize, false);
  const Codec spec = SpecOf(plan);
  ShardUnderTest shard(plan);
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(kSize))));
  std::vector<double> missing(kSize);
  // Ten frames of other places each hold more than one answer can; then four times a quarter.
  for (int64_t iteration = 0; iteration < 14; ++iteration) {
    std::vector<Payload> gradients;
    for (int worker = 0; worker < kWorkers; ++worker) {
      Floats none(kSize);
      gradients.push_back(
          Packed(spec, iteration < 10 ? RandomFloats(kSize, random) : Floats(kSize), none));
      const Floats gradient = Unpacked(spec, gradients.back(), kSize);
      for (int64_t i = 0; i < kSize; ++i) missing[i] += gradient[i];
    }
    const Floats answer = Unpacked(spec, Exchange(shard, iteration, gradients, random), kSize);
    for (int64_t i = 0; i < kSize; ++i) missing[i] -= answer[i];
    const double most =
        std::abs(*std::max_element(missing.begin(), missing.end(),
                                   [](double a, double b) { return std::abs(a) < std::abs(b); }));
    if (iteration == 9) {
      EXPECT_GT(most, 0.1);
    }
    if (iteration == 13) {
      EXPECT_LT(most, 1e-5);
    }
  }
}

TEST(ServerCodecTest, RefusesFramesThatDoNotDecode) {
  constexpr int64_t kSize = 8;  // two of them are sent by top-k
  for (const bool deterministic : {false, true}) {
    const wire::PlanAndModel plan = SumPlan(3, TOP_K, kSize, deterministic);
    const Codec spec = SpecOf(plan);
    ShardUnderTest shard(plan);
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(kSize))));
    Floats none(kSize);
    const Payload good = Packed(spec, {0, 3, 0, 0, 0, -2, 0, 0}, none);
    std::string bad_indices = good.ToString();
    bad_indices[0] = static_cast<char>(kSize);
    // Rank 2 comes early, 0 in its turn, 1 last.
    int64_t dropped = 0;
    for (const int worker : {2, 0, 1}) {
      const Payload bodies[] = {Payload::FromString(bad_indices),
                                Payload::FromString(good.ToString() + "x"), Body(Floats(kSize)),
                                Payload()};
      // Often enough to use up what memory they might keep.
      for (int i = 0; i < 12; ++i) {
        EXPECT_TRUE(
            shard.Receive(ShardFrame(MessageKind::kGradient, worker, 0, bodies[i % 4])).empty());
        EXPECT_EQ(shard->dropped_frames(), ++dropped);
      }
      const auto& sent = shard.Receive(ShardFrame(MessageKind::kGradient, worker, 0, good));
      EXPECT_EQ(shard->dropped_frames(), dropped);
      if (worker != 1) continue;
      ASSERT_EQ(sent.size(), 3u);
      EXPECT_THAT(Unpacked(spec, sent[0].body, kSize),
                  testing::ElementsAre(0, 9, 0, 0, 0, -6, 0, 0));
    }
  }
}

}  // namespace
}  // namespace poseidon
