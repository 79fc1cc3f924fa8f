// Workers of known speed whose times are drawn: parts of the batch follow the speeds, and noise
// moves nothing.
#include "scheduler/stragglers/batch_balancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace poseidon {
namespace {

using testing::HasSubstr;

class BalancedJob {
 public:
  BalancedJob(std::vector<double> seconds_a_sample, int64_t batch, uint64_t seed)
      : seconds_(std::move(seconds_a_sample)), random_(seed) {
    plan_.set_workers(static_cast<int>(seconds_.size()));
    plan_.mutable_parts()->Resize(plan_.workers(), batch);
    balancer_.SetPlan(plan_);
  }

  // Returns how often the batch was divided anew.
  int Run(int iterations, int64_t total) {
    int changes = 0;
    for (int i = 0; i < iterations; ++i, ++iteration_) {
      std::optional<BatchBalancer::Rebalanced> next;
      for (int place = 0; place < plan_.workers(); ++place) {
        if (auto found = balancer_.Add(ProgressOf(place, total))) next = std::move(found);
      }
      if (!next) continue;
      ++changes;
      why_ = next->why;
      plan_.mutable_parts()->Assign(next->parts.begin(), next->parts.end());
      plan_.set_start_iteration(iteration_ + 1);
      balancer_.SetPlan(plan_);
    }
    return changes;
  }

  // The slowest worker's time, without noise.
  double Slowest() const {
    double slowest = 0;
    for (int place = 0; place < plan_.workers(); ++place) {
      slowest = std::max(slowest, Own(place));
    }
    return slowest;
  }
  double Ideal() const {
    double speeds = 0;
    for (const double seconds : seconds_) speeds += 1 / seconds;
    const auto batch =
        static_cast<double>(std::accumulate(plan_.parts().begin(), plan_.parts().end(), 0L));
    return seconds_an_iteration_ + batch / speeds;
  }
  void SetSeconds(int place, double seconds) { seconds_[place] = seconds; }
  // Of each worker, whatever its part.
  void SetSecondsAnIteration(double seconds) { seconds_an_iteration_ = seconds; }
  const Plan& plan() const { return plan_; }
  const std::string& why() const { return why_; }

 private:
  double Own(int place) const {
    return seconds_an_iteration_ + static_cast<double>(plan_.parts(place)) * seconds_[place];
  }

  wire::Progress ProgressOf(int place, int64_t total) {
    const double own = Own(place) * std::lognormal_distribution<double>(0, 0.05)(random_);
    wire::Progress progress;
    progress.set_rank(place);
    progress.set_iteration(iteration_);
    progress.set_total_iterations(total);
    // All last as long as the slowest; the rest a worker stands still. A test phase now and then.
    const double test = iteration_ % 5 == 0 && place == 0 ? 3 : 0;
    progress.set_iteration_seconds(10 + test);
    progress.set_exposed_seconds(10 - own);
    progress.set_beside_seconds(test);
    return progress;
  }

  std::vector<double> seconds_;
  double seconds_an_iteration_ = 0;
  std::mt19937_64 random_;
  Plan plan_;
  BatchBalancer balancer_;
  int64_t iteration_ = 0;
  std::string why_;
};

TEST(BatchBalancerTest, PartsFollowSpeedsAndStay) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<double> seconds;
    const size_t workers = 2 + random() % 7;
    for (size_t i = 0; i < workers; ++i) {
      seconds.push_back(std::uniform_real_distribution<double>(0.001, 0.004)(random));
    }
    BalancedJob job(seconds, 64, seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_LE(job.Run(2000, 1 << 20), 2);
    EXPECT_LT(job.Slowest(), 1.2 * job.Ideal());
  }
}

TEST(BatchBalancerTest, EqualWorkersKeepEqualParts) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    BalancedJob job({0.002, 0.002, 0.002, 0.002}, 32, seed);
    EXPECT_EQ(job.Run(1000, 1 << 20), 0) << "seed " << seed;
  }
}

TEST(BatchBalancerTest, AWorkerThatHealsGetsItsPartBack) {
  BalancedJob job({0.002, 0.002, 0.004, 0.002}, 32, 1);
  EXPECT_EQ(job.Run(BatchBalancer::kIterations, 1 << 20), 1);
  EXPECT_THAT(job.why(), HasSubstr("parts of the batch, by worker: "));
  EXPECT_NEAR(job.plan().parts(2), 128 / 7.0, 2);
  job.SetSeconds(2, 0.002);
  EXPECT_EQ(job.Run(BatchBalancer::kIterations, 1 << 20), 1);
  EXPECT_NEAR(job.plan().parts(2), 32, 4);
}

// However slow it was, and however much of an iteration does not depend on the part, for which a
// worker with a few samples seems slow.
TEST(BatchBalancerTest, NoWorkerKeepsASmallPartForEver) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int workers = 2 + static_cast<int>(random() % 7);
    std::vector<double> seconds;
    for (int i = 0; i < workers; ++i) {
      seconds.push_back(std::uniform_real_distribution<double>(0.001, 0.002)(random));
    }
    BalancedJob job(seconds, 32, seed);
    job.SetSecondsAnIteration(std::uniform_real_distribution<double>(0, 0.1)(random));
    const int slow = static_cast<int>(random() % static_cast<uint64_t>(workers));
    const double healthy = seconds[static_cast<size_t>(slow)];
    job.SetSeconds(slow, healthy * std::exp(std::uniform_real_distribution<>(0, 5)(random)));
    job.Run(10 * BatchBalancer::kIterations, 1 << 20);
    // As long as it is slow its part stays small.
    EXPECT_LE(job.Run(100 * BatchBalancer::kIterations, 1 << 20), 4);
    job.SetSeconds(slow, healthy);
    // Step by step, each as large as a worker seems fast, and then it stays.
    job.Run(40 * BatchBalancer::kIterations, 1 << 20);
    // Going over pays from a tenth on, as if no time were fixed; and noise is as much.
    EXPECT_LT(job.Slowest(), 1.25 * job.Ideal());
    EXPECT_LE(job.Run(1000, 1 << 20), 3);
  }
}

TEST(BatchBalancerTest, TheLastIterationsAreNotWorthIt) {
  BalancedJob job({0.002, 0.006}, 32, 1);
  EXPECT_EQ(job.Run(BatchBalancer::kIterations, 2 * BatchBalancer::kIterations - 2), 0);
}

TEST(BatchBalancerTest, APlanWithoutPartsIsLeftAlone) {
  BatchBalancer balancer;
  Plan plan;
  plan.set_workers(2);
  balancer.SetPlan(plan);
  for (int i = 0; i < 100; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      wire::Progress progress;
      progress.set_rank(rank);
      progress.set_iteration(i);
      progress.set_total_iterations(1000);
      progress.set_iteration_seconds(1 + rank);
      EXPECT_FALSE(balancer.Add(progress).has_value());
    }
  }
}

}  // namespace
}  // namespace poseidon
