// Workers whose times are drawn: who is slower than the others is named, noise is not.
#include "scheduler/stragglers/straggler_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <utility>

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Drawn {
  double compute = 0.1;  // seconds
  double data = 0.01;
  double exchange = 0.05;
};

// A job under BSP: all iterations last as long as those of the slowest worker, and the others stand
// still meanwhile.
class Job {
 public:
  Job(int workers, uint64_t seed) : workers_(workers), random_(seed) { watch_.SetWorkers(workers); }

  // Times are `of(rank)`'s, each with noise of a tenth.
  std::vector<std::string> Run(int iterations, const std::function<Drawn(int)>& of) {
    std::vector<std::string> news;
    for (int i = 0; i < iterations; ++i) {
      for (const std::string& sentence : Iterate(of)) news.push_back(sentence);
    }
    return news;
  }
  StragglerWatch& watch() { return watch_; }
  std::vector<Straggler> TakeChanged() { return std::exchange(changed_, {}); }

 private:
  std::vector<std::string> Iterate(const std::function<Drawn(int)>& of) {
    std::vector<Drawn> drawn;
    double slowest = 0;
    for (int rank = 0; rank < workers_; ++rank) {
      Drawn times = of(rank);
      for (double* part : {&times.compute, &times.data, &times.exchange}) *part *= Noise();
      drawn.push_back(times);
      slowest = std::max(slowest, times.compute + times.data);
    }
    std::vector<std::string> news;
    for (int rank = 0; rank < workers_; ++rank) {
      const Drawn& times = drawn[rank];
      const double own = times.compute + times.data;
      wire::Progress progress;
      progress.set_rank(rank);
      progress.set_iteration(iteration_);
      progress.set_iteration_seconds(slowest + times.exchange);
      progress.set_data_seconds(times.data);
      progress.set_exposed_seconds(slowest - own + times.exchange);
      // It begins when half of the computing is done, and waits for the slowest.
      progress.set_exchange_seconds(slowest - own / 2 + times.exchange);
      for (std::string& sentence : watch_.Add(progress)) news.push_back(std::move(sentence));
      changed_.insert(changed_.end(), watch_.changed().begin(), watch_.changed().end());
    }
    ++iteration_;
    return news;
  }
  double Noise() { return std::lognormal_distribution<double>(0, 0.1)(random_); }

  int workers_;
  std::mt19937_64 random_;
  StragglerWatch watch_;
  std::vector<Straggler> changed_;
  int64_t iteration_ = 0;
};

constexpr int kToName = StragglerWatch::kIterations * StragglerWatch::kInARow;

TEST(StragglerWatchTest, NoiseIsNoStraggler) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const int workers = 2 + static_cast<int>(seed % 7);
    Job job(workers, seed);
    EXPECT_THAT(job.Run(400, [](int) { return Drawn(); }), IsEmpty()) << "seed " << seed;
    EXPECT_THAT(job.watch().stragglers(), IsEmpty());
  }
}

TEST(StragglerWatchTest, WhoIsSlowIsNamedOnceWithItsPartAndHealsOnce) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const int workers = 2 + static_cast<int>(random() % 7);
    const int slow = static_cast<int>(random() % workers);
    const double factor = std::uniform_real_distribution<double>(1.5, 4)(random);
    const auto part = static_cast<SlowPart>(random() % 3);
    const auto times = [&](int rank) {
      Drawn drawn;
      if (rank != slow) return drawn;
      if (part == SlowPart::kCompute) drawn.compute *= factor;
      // As long again as all that the others do by themselves, and more.
      if (part == SlowPart::kData) drawn.data += (factor - 1) * (drawn.compute + drawn.data);
      if (part == SlowPart::kLink) drawn.exchange += (factor - 1) * 0.2;
      return drawn;
    };
    Job job(workers, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + SlowPartName(part) + ", factor " +
                 std::to_string(factor));
    EXPECT_THAT(job.Run(kToName - 1, times), IsEmpty());
    EXPECT_THAT(job.Run(5 * kToName, times),
                ElementsAre(HasSubstr("worker " + std::to_string(slow) + " is slow: ")));
    ASSERT_EQ(job.watch().stragglers().size(), 1u);
    const Straggler& straggler = job.watch().stragglers()[0];
    EXPECT_EQ(straggler.rank, slow);
    EXPECT_EQ(straggler.part, part);
    EXPECT_GT(straggler.ratio, StragglerWatch::kSlow);
    EXPECT_EQ(straggler.until, std::nullopt);
    EXPECT_THAT(job.Run(5 * kToName, [](int) { return Drawn(); }),
                ElementsAre("worker " + std::to_string(slow) + " is as fast as the others again"));
    ASSERT_EQ(job.watch().stragglers().size(), 1u);
    EXPECT_GE(*straggler.until, straggler.from + kToName);
  }
}

TEST(StragglerWatchTest, TheRatioIsThatOfTheOwnTime) {
  Job job(4, 1);
  job.Run(kToName, [](int rank) {
    return rank == 2 ? Drawn{.compute = 0.21} : Drawn{};  // 0.22 s by itself, the others 0.11 s
  });
  ASSERT_EQ(job.watch().stragglers().size(), 1u);
  // A median of 20 with noise of a tenth is within 5 standard errors, 1.25 * 0.1 / sqrt(20) each.
  EXPECT_NEAR(job.watch().stragglers()[0].ratio, 2, 2 * 2 * 5 * 0.028);
}

// A slow worker that has been given less to do takes as long as the others, and is slow.
TEST(StragglerWatchTest, WhoHasASmallPartOfTheBatchIsNotFasterForIt) {
  Plan plan;
  plan.set_workers(4);
  for (const int64_t part : {37, 37, 18, 36}) plan.add_parts(part);
  Job job(4, 1);
  job.watch().SetPlan(plan);
  EXPECT_THAT(job.Run(3 * kToName, [](int) { return Drawn(); }),
              ElementsAre(HasSubstr("worker 2 is slow: ")));
  ASSERT_EQ(job.watch().stragglers().size(), 1u);
  EXPECT_NEAR(job.watch().stragglers()[0].ratio, 2, 2 * 2 * 5 * 0.028);
}

TEST(StragglerWatchTest, AShortSpellIsNoStraggler) {
  Job job(4, 3);
  const auto slow = [](int rank) { return Drawn{.compute = rank == 1 ? 0.3 : 0.1}; };
  const auto even = [](int) { return Drawn(); };
  for (int spell = 0; spell < 10; ++spell) {
    EXPECT_THAT(job.Run(StragglerWatch::kIterations, slow), IsEmpty());
    EXPECT_THAT(job.Run(StragglerWatch::kIterations, even), IsEmpty());
  }
}

// Iterations of a few milliseconds, of which another program holds up one worker now and then, for
// up to two seconds.
TEST(StragglerWatchTest, WhatOtherProgramsDoForASecondIsNoStraggler) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 random(seed);
    const int workers = 2 + static_cast<int>(random() % 7);
    const double own = std::uniform_real_distribution<double>(0.004, 0.02)(random);
    const Drawn even{.compute = own, .data = 0, .exchange = own / 2};
    Job job(workers, seed);
    for (int spell = 0; spell < 20; ++spell) {
      const int slow = static_cast<int>(random() % workers);
      const double factor = std::uniform_real_distribution<double>(1.5, 3)(random);
      const auto iterations = [&](double seconds) { return static_cast<int>(seconds / own); };
      // Others stand still meanwhile, so that an iteration is longer by the factor.
      const double seconds = std::uniform_real_distribution<double>(0, 2)(random) / factor / 1.5;
      EXPECT_THAT(job.Run(iterations(seconds),
                          [&](int rank) {
                            Drawn drawn = even;
                            if (rank == slow) drawn.compute *= factor;
                            return drawn;
                          }),
                  IsEmpty())
          << "seed " << seed;
      EXPECT_THAT(job.Run(iterations(0.5), [&](int) { return even; }), IsEmpty());
    }
  }
}

TEST(StragglerWatchTest, ShortIterationsAreComparedForSeconds) {
  Job job(3, 11);
  const auto slow = [](int rank) {
    return Drawn{.compute = rank == 1 ? 0.012 : 0.006, .data = 0, .exchange = 0.003};
  };
  // An iteration takes 15 ms and what noise adds.
  const int before = static_cast<int>(0.75 * StragglerWatch::kLeastSeconds / 0.015);
  EXPECT_THAT(job.Run(before, slow), IsEmpty());
  EXPECT_THAT(job.Run(before, slow), ElementsAre(HasSubstr("worker 1 is slow: ")));
}

TEST(StragglerWatchTest, TestPhasesAndSnapshotsDoNotCount) {
  StragglerWatch watch;
  watch.SetWorkers(2);
  for (int i = 0; i < 10 * kToName; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      wire::Progress progress;
      progress.set_rank(rank);
      progress.set_iteration(i);
      progress.set_iteration_seconds(1);
      if (rank == 0) progress.set_beside_seconds(0.5);
      if (rank == 1) progress.set_exposed_seconds(0.5);
      EXPECT_THAT(watch.Add(progress), IsEmpty());
    }
  }
}

TEST(StragglerWatchTest, MicrosecondsAreNoStragglers) {
  Job job(3, 5);
  const auto tiny = [](int rank) {
    return Drawn{.compute = rank == 0 ? 8e-4 : 1e-4, .data = 0, .exchange = 1e-4};
  };
  EXPECT_THAT(job.Run(10 * kToName, tiny), IsEmpty());
}

TEST(StragglerWatchTest, AnotherWatchCanBeToldAllOfIt) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int workers = 2 + static_cast<int>(random() % 4);
    Job job(workers, seed);
    StragglerWatch restored;
    // More have been slow than are kept.
    for (int phase = 0; phase < 700; ++phase) {
      const int slow = static_cast<int>(random() % (workers + 1));
      for (int i = 0; i < kToName; ++i) {
        job.Run(1, [&](int rank) {
          Drawn drawn;
          if (rank == slow) drawn.compute *= 2;
          return drawn;
        });
        for (const Straggler& changed : job.TakeChanged()) {
          restored.Restore(StragglerOf(RecordOf(changed)));
        }
      }
      ASSERT_EQ(restored.stragglers(), job.watch().stragglers()) << "phase " << phase;
    }
    EXPECT_EQ(restored.stragglers().size(), 200u);
  }
}

TEST(StragglerWatchTest, OneWorkerHasNobodyToBeComparedWith) {
  Job job(1, 1);
  EXPECT_THAT(job.Run(3 * kToName, [](int) { return Drawn(); }), IsEmpty());
}

TEST(StragglerWatchTest, WhoIsNoWorkerAnyMoreIsNoStraggler) {
  Job job(3, 7);
  job.Run(kToName, [](int rank) { return Drawn{.compute = rank == 2 ? 0.3 : 0.1}; });
  ASSERT_EQ(job.watch().stragglers().size(), 1u);
  StragglerWatch& watch = job.watch();
  watch.SetWorkers(2);  // worker 2 is lost
  for (int i = kToName; i < kToName + StragglerWatch::kIterations; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      wire::Progress progress;
      progress.set_rank(rank);
      progress.set_iteration(i);
      progress.set_iteration_seconds(0.1);
      EXPECT_THAT(watch.Add(progress), IsEmpty());
    }
  }
  EXPECT_TRUE(watch.stragglers()[0].until.has_value());
}

}  // namespace
}  // namespace poseidon
