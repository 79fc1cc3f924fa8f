#include "client/sync/schedule_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <limits>
#include <string>
#include <vector>

#include "core/random.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;
using FrameStatus = FrameStatus;

constexpr Codec kFloats{};

// Workers that all-reduce the same chunk again and again, each as soon as it can. Frames arrive in
// an order that the seed decides, some twice.
class Cluster {
 public:
  struct Frame {
    int64_t iteration;
    int from;
    int to;
    int step;
    Payload body;
  };

  Cluster(Scheme scheme, int workers, int64_t size, const Codec& codec, float scale, uint64_t seed)
      : random_(seed) {
    for (int rank = 0; rank < workers; ++rank) {
      runners_.emplace_back(AllReduceSchedule(scheme, {}, 0, {0, size}, rank, workers), codec,
                            scale);
    }
  }

  // values[t][r]: what worker r gives in iteration t, and has when the iteration is over.
  void Run(std::vector<std::vector<Floats>>& values) {
    for (int rank = 0; rank < static_cast<int>(runners_.size()); ++rank) BeginNext(rank, values);
    while (!under_way_.empty()) {
      std::swap(under_way_[random_.Below(under_way_.size())], under_way_.back());
      const Frame frame = under_way_.back();
      under_way_.pop_back();
      Deliver(frame, FrameStatus::kAccepted);
      if (random_.Chance(0.3)) Deliver(frame, FrameStatus::kDuplicate);
      BeginNext(frame.to, values);
    }
    for (const ScheduleRunner& runner : runners_) {
      EXPECT_TRUE(runner.done());
      EXPECT_EQ(runner.begun(), static_cast<int64_t>(values.size()));
    }
  }

  int frames_of_the_next_iteration() const { return early_; }

 private:
  void Deliver(const Frame& frame, FrameStatus expected) {
    ScheduleRunner& runner = runners_[frame.to];
    if (frame.iteration == runner.begun()) ++early_;
    std::vector<ReduceFrame> frames;
    ASSERT_EQ(runner.Receive(frame.iteration, frame.from, frame.step, frame.body, frames),
              expected);
    Put(frame.to, frames);
  }

  // The worker's next iteration, and those after it as long as it needs nobody.
  void BeginNext(int rank, std::vector<std::vector<Floats>>& values) {
    ScheduleRunner& runner = runners_[rank];
    while (runner.done() && runner.begun() < static_cast<int64_t>(values.size())) {
      // An owner that is not the vector: the test keeps it longer than any frame.
      std::vector<ReduceFrame> frames;
      runner.Begin(values[runner.begun()][rank], nullptr, frames);
      Put(rank, frames);
    }
  }

  void Put(int rank, const std::vector<ReduceFrame>& frames) {
    for (const ReduceFrame& frame : frames) {
      under_way_.push_back({runners_[rank].begun() - 1, rank, frame.peer, frame.step, frame.body});
    }
  }

  Random random_;
  std::vector<ScheduleRunner> runners_;
  std::vector<Frame> under_way_;
  int early_ = 0;
};

TEST(ScheduleRunnerTest, SumsIterationAfterIterationInAnyOrderOfArrival) {
  Random random(1);
  int early = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const int workers = 1 + static_cast<int>(random.Below(6));
    const size_t size = random.Below(40);
    const Scheme scheme = random.Chance(0.5) ? RING : HALVING_DOUBLING;
    std::vector<std::vector<Floats>> values(5, std::vector<Floats>(workers, Floats(size)));
    std::vector<Floats> sums(values.size(), Floats(size));
    for (size_t t = 0; t < values.size(); ++t) {
      for (Floats& floats : values[t]) {
        for (size_t i = 0; i < size; ++i) {
          floats[i] = static_cast<float>(random.Below(1000));
          sums[t][i] += floats[i];
        }
      }
    }
    Cluster cluster(scheme, workers, static_cast<int64_t>(size), kFloats, 1, random.Next());
    cluster.Run(values);
    for (size_t t = 0; t < values.size(); ++t) EXPECT_THAT(values[t], testing::Each(sums[t]));
    early += cluster.frames_of_the_next_iteration();
  }
  EXPECT_GT(early, 100);  // or the orders of arrival are not what the test is for
}

// With a codec that rounds, workers must still end with the same bits, which survive the codec.
TEST(ScheduleRunnerTest, RoundedSumsHaveTheSameBitsEverywhere) {
  Random random(2);
  for (const CodecType kind : {CodecType::kFp16, CodecType::kBf16}) {
    const Codec codec{.type = kind};
    const double unit = kind == CodecType::kFp16 ? 0x1p-11 : 0x1p-8;
    for (const Scheme scheme : {RING, HALVING_DOUBLING}) {
      for (int workers = 1; workers <= 7; ++workers) {
        std::vector<std::vector<Floats>> values(2, std::vector<Floats>(workers, Floats(101)));
        std::vector<std::vector<double>> sums(2, std::vector<double>(101));
        for (int t = 0; t < 2; ++t) {
          for (Floats& floats : values[t]) {
            for (size_t i = 0; i < floats.size(); ++i) {
              floats[i] = static_cast<float>(random.Uniform());
              sums[t][i] += floats[i];
            }
          }
        }
        const float scale = 1.0F / static_cast<float>(workers);
        Cluster(scheme, workers, 101, codec, scale, random.Next()).Run(values);
        for (int t = 0; t < 2; ++t) {
          EXPECT_THAT(values[t], testing::Each(values[t][0]));
          Floats again = values[t][0];
          Round(codec, again);
          EXPECT_EQ(again, values[t][0]);
          // One rounding a hop, at most `workers` of them.
          for (size_t i = 0; i < again.size(); ++i) {
            EXPECT_NEAR(again[i], sums[t][i] * scale, workers * unit * sums[t][i] * scale);
          }
        }
      }
    }
  }
}

// The mean would fit in both cases.
TEST(ScheduleRunnerTest, InFp16ASumOverTheWorkersHasToFit) {
  constexpr int kWorkers = 64;
  const auto mean_of = [](float gradient) {
    std::vector<std::vector<Floats>> values(
        1, std::vector<Floats>(kWorkers, Floats(kWorkers, gradient)));
    Cluster(RING, kWorkers, kWorkers, {.type = CodecType::kFp16}, 1.0F / kWorkers, 3).Run(values);
    return values[0][0];
  };
  EXPECT_THAT(mean_of(1000), testing::Each(testing::FloatNear(1000, kWorkers * 0x1p-11F * 1000)));
  EXPECT_THAT(mean_of(1100), testing::Each(std::numeric_limits<float>::infinity()));
}

// Worker 0 of a ring of two, by hand: sends piece 0, adds piece 1, sends it, takes piece 0.
class TwoWorkersTest : public testing::Test {
 protected:
  static Payload Body(const Floats& floats) {
    const auto owner = std::make_shared<const Floats>(floats);
    return Payload::View(*owner, owner);
  }
  FrameStatus Receive(int64_t iteration, int peer, int step, const Payload& body) {
    return runner_.Receive(iteration, peer, step, body, sent_);
  }

  ScheduleRunner runner_{AllReduceSchedule(RING, {}, 0, {0, 4}, 0, 2), kFloats, 1};
  Floats floats_ = {1, 2, 3, 4};
  std::vector<ReduceFrame> sent_;
};

TEST_F(TwoWorkersTest, SaysWhomItWaitsFor) {
  EXPECT_TRUE(runner_.done());
  EXPECT_EQ(runner_.missing(), std::nullopt);
  runner_.Begin(floats_, nullptr, sent_);
  EXPECT_EQ(runner_.missing(), 1);
  EXPECT_EQ(Receive(0, 1, 0, Body({10, 20})), FrameStatus::kAccepted);
  EXPECT_EQ(Receive(0, 1, 1, Body({30, 40})), FrameStatus::kAccepted);
  EXPECT_EQ(runner_.missing(), std::nullopt);
  EXPECT_THAT(floats_, testing::ElementsAre(30, 40, 13, 24));
}

TEST_F(TwoWorkersTest, RefusesWhatNoPeerOfItWouldSend) {
  runner_.Begin(floats_, nullptr, sent_);
  EXPECT_EQ(Receive(0, 2, 0, Body({1, 2})), FrameStatus::kInvalid);     // no such peer
  EXPECT_EQ(Receive(0, 1, 2, Body({1, 2})), FrameStatus::kInvalid);     // no such step
  EXPECT_EQ(Receive(0, 1, -1, Body({1, 2})), FrameStatus::kInvalid);    //
  EXPECT_EQ(Receive(0, 1, 0, Body({1, 2, 3})), FrameStatus::kInvalid);  // another size
  EXPECT_EQ(Receive(0, 1, 0, Payload()), FrameStatus::kInvalid);
  EXPECT_EQ(Receive(2, 1, 0, Body({1, 2})), FrameStatus::kInvalid);  // can't be that far ahead
  EXPECT_EQ(Receive(-1, 1, 0, Body({1, 2})), FrameStatus::kDuplicate);
  EXPECT_THAT(floats_, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(runner_.missing(), 1);
}

TEST_F(TwoWorkersTest, TakesAFrameOnceInWhicheverIteration) {
  EXPECT_EQ(Receive(0, 1, 1, Body({30, 40})),
            FrameStatus::kAccepted);  // before Begin, and before step 0
  EXPECT_EQ(Receive(0, 1, 1, Body({0, 0})), FrameStatus::kDuplicate);
  runner_.Begin(floats_, nullptr, sent_);
  EXPECT_EQ(Receive(1, 1, 0, Body({5, 6})), FrameStatus::kAccepted);  // of the next iteration
  EXPECT_EQ(Receive(1, 1, 0, Body({7, 7})), FrameStatus::kDuplicate);
  EXPECT_EQ(Receive(0, 1, 0, Body({10, 20})), FrameStatus::kAccepted);
  EXPECT_EQ(Receive(0, 1, 0, Body({10, 20})), FrameStatus::kDuplicate);
  EXPECT_EQ(Receive(0, 1, 1, Body({30, 40})), FrameStatus::kDuplicate);
  EXPECT_THAT(floats_, testing::ElementsAre(30, 40, 13, 24));
  Floats next = {0, 0, 0, 0};
  runner_.Begin(next, nullptr, sent_);
  EXPECT_THAT(next, testing::ElementsAre(0, 0, 5, 6));
}

TEST_F(TwoWorkersTest, FramesAreViewsThatHoldTheOwner) {
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> lease = owner;
  runner_.Begin(floats_, std::move(owner), sent_);
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(static_cast<const void*>(sent_[0].body.bytes().data()), floats_.data());
  Receive(0, 1, 0, Body({10, 20}));
  sent_.erase(sent_.begin());
  Receive(0, 1, 1, Body({30, 40}));
  EXPECT_TRUE(runner_.done());
  EXPECT_FALSE(lease.expired());  // the second frame
  sent_.clear();
  EXPECT_TRUE(lease.expired());
}

// Whose bytes are not the floats; but who waits for the release waits for what is to be sent.
TEST(ScheduleRunnerTest, FramesOfACodecHoldTheOwner) {
  ScheduleRunner runner(AllReduceSchedule(RING, {}, 0, {0, 4}, 0, 2), {.type = CodecType::kFp16},
                        1);
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> lease = owner;
  Floats floats = {1, 2, 3, 4};
  std::vector<ReduceFrame> sent;
  runner.Begin(floats, std::move(owner), sent);
  const Payload body = Payload::FromString(std::string(4, 0));
  EXPECT_EQ(runner.Receive(0, 1, 0, body, sent), FrameStatus::kAccepted);
  EXPECT_EQ(runner.Receive(0, 1, 1, body, sent), FrameStatus::kAccepted);
  EXPECT_TRUE(runner.done());
  ASSERT_EQ(sent.size(), 2U);
  sent.erase(sent.begin());
  EXPECT_FALSE(lease.expired());
  sent.clear();
  EXPECT_TRUE(lease.expired());
}

TEST(PhantomTest, SizesAreThoseOfTheCodec) {
  ScheduleRunner runner(AllReduceSchedule(RING, {}, 0, {0, 10}, 0, 2), {.type = CodecType::kFp16},
                        1);
  std::vector<ReduceFrame> sent;
  runner.Begin({}, nullptr, sent);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].body.phantom());
  EXPECT_EQ(sent[0].body.size(), 10U);
  EXPECT_EQ(runner.Receive(0, 1, 0, Payload::Phantom(20), sent), FrameStatus::kInvalid);
  EXPECT_EQ(runner.Receive(0, 1, 0, Payload::Phantom(10), sent), FrameStatus::kAccepted);
  EXPECT_EQ(runner.Receive(0, 1, 1, Payload::Phantom(10), sent), FrameStatus::kAccepted);
  EXPECT_TRUE(runner.done());
}

// Bytes that runners of a ring's worker hold in the middle of an iteration.
size_t BytesOfRunners(int workers) {
  constexpr int kRunners = 100;
  const size_t before = mallinfo2().uordblks;
  std::vector<ScheduleRunner> runners;
  std::vector<ReduceFrame> sent;
  for (int i = 0; i < kRunners; ++i) {
    runners.emplace_back(AllReduceSteps(RING, {}, 0, {0, 1 << 20}, 0, workers), kFloats, 1);
  }
  for (ScheduleRunner& runner : runners) {
    runner.Begin({}, nullptr, sent);
    for (int step = 0; step < workers / 2; ++step) {
      const size_t floats = (1 << 20) / workers;
      EXPECT_EQ(runner.Receive(0, workers - 1, step, Payload::Phantom(4 * floats), sent),
                FrameStatus::kAccepted);
    }
    sent.clear();
  }
  return mallinfo2().uordblks - before;
}

TEST(PhantomTest, MemoryDoesNotGrowWithTheSchedule) {
  // What frames were sent in is the test's.
  const size_t few = BytesOfRunners(16);
  const size_t many = BytesOfRunners(4096);
  EXPECT_LT(many, few + (512 << 10));  // a schedule of each runner would be 400 KB
}

}  // namespace
}  // namespace poseidon
