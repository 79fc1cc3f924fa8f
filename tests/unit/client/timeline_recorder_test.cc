#include "client/timeline_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

// Two buckets of one layer each; iterations of 10 ms: the layers are ready after 4 and 7 ms, fresh
// after 8 and 12, and the next iteration waits for layer 0 from its begin to its 2nd ms.
class TimelineRecorderTest : public testing::Test {
 protected:
  TimelineRecorderTest() : buckets_(TwoBuckets()) {
    buckets_.Report(0, 0, {});
    buckets_.Report(1, 0, {});
  }

  static Plan TwoBuckets() {
    Plan plan;
    for (int b = 0; b < 2; ++b) {
      BucketPlan& bucket = *plan.add_buckets();
      bucket.set_first_layer(b);
      bucket.set_layer_count(1);
      bucket.set_scheme(PS);
      bucket.add_chunks()->set_size(3);
    }
    return plan;
  }

  std::optional<wire::IterationTimeline> Iterate(bool last_is_fresh = true) {
    const Time begin = number_ * 10 * kMillisecond;
    if (number_ > 0) {
      if (last_is_fresh) buckets_.Report(0, number_, begin + 2 * kMillisecond);
      recorder_.Wait(0, begin, begin + 2 * kMillisecond);
    }
    buckets_.LayerReady(1, begin + 4 * kMillisecond);
    buckets_.LayerReady(0, begin + 7 * kMillisecond);
    buckets_.Report(1, number_ + 1, begin + 8 * kMillisecond);
    return recorder_.EndIteration({number_++, begin, begin + 10 * kMillisecond}, 0, buckets_);
  }

  BucketProgress buckets_;
  TimelineRecorder recorder_;
  int64_t number_ = 0;
};

TEST_F(TimelineRecorderTest, TellsOfTheIterationBeforeOnceASecond) {
  // Connections are made in the first exchange, which is not told of.
  EXPECT_FALSE(Iterate());
  EXPECT_FALSE(Iterate());
  const auto timeline = Iterate();
  ASSERT_TRUE(timeline);
  EXPECT_EQ(timeline->iteration(), 1);
  EXPECT_DOUBLE_EQ(timeline->duration_ms(), 10);
  ASSERT_EQ(timeline->buckets_size(), 2);
  EXPECT_DOUBLE_EQ(timeline->buckets(0).ready_ms(), 7);
  EXPECT_DOUBLE_EQ(timeline->buckets(0).fresh_ms(), 12);
  EXPECT_DOUBLE_EQ(timeline->buckets(1).ready_ms(), 4);
  EXPECT_DOUBLE_EQ(timeline->buckets(1).fresh_ms(), 8);
  // Its own wait for the exchange before, and the next one's for its.
  ASSERT_EQ(timeline->waits_size(), 2);
  EXPECT_DOUBLE_EQ(timeline->waits(0).begin_ms(), 0);
  EXPECT_DOUBLE_EQ(timeline->waits(1).begin_ms(), 10);
  EXPECT_DOUBLE_EQ(timeline->waits(1).end_ms(), 12);

  int64_t next = number_;
  while (!Iterate()) ++next;
  EXPECT_EQ(next, 2 + 100);
}

TEST_F(TimelineRecorderTest, ABucketThatHasNotComeIsNotToldOf) {
  for (int i = 0; i < 2; ++i) Iterate();
  EXPECT_FALSE(Iterate(false));
}

}  // namespace
}  // namespace poseidon
