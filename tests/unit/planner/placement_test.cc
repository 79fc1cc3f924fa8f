#include "planner/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

constexpr int64_t kPiece = 1000;  // floats
constexpr int64_t kPieces = 2000;

Job JobWith(int workers, int servers) {
  Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_servers(servers);
  job.mutable_cluster()->mutable_network()->set_bandwidth("10Gbps");
  job.mutable_communication()->set_policy(Communication::ALL_PS);
  job.mutable_communication()->set_kv_pair_bytes(4 * kPiece);
  return job;
}

void SetLink(int worker, double share, Job& job) {
  Deviation& deviation = *job.mutable_cluster()->add_deviation();
  deviation.set_worker(worker);
  deviation.set_bandwidth(std::to_string(std::llround(share * 1e10)) + "bps");
}

std::vector<int64_t> LoadsOf(const Job& job) {
  ModelSpec model;
  AddConvolution("layer", 1, kPiece * kPieces, 1, 1, false, model);
  return ServerLoads(MakePlan(InformationBook(model, job.cluster()), job.communication()));
}

// Of all links that carry an iteration, in units of the whole model over the usual link.
double LongestLink(const std::vector<int64_t>& loads, const std::vector<double>& links) {
  const double all = static_cast<double>(kPiece * kPieces);
  const auto workers = static_cast<double>(links.size());
  double longest = 0;
  for (size_t i = 0; i < links.size(); ++i) {
    const double own = i < loads.size() ? static_cast<double>(loads[i]) / all : 0;
    longest = std::max(longest, (1 - own + (workers - 1) * own) / links[i]);
  }
  return longest;
}

// By bisection: the shortest time in which the links carry all, however it is split.
double ShortestTime(const std::vector<double>& links) {
  const auto workers = static_cast<double>(links.size());
  double low = 0;
  double high = 1e6;
  for (int step = 0; step < 200; ++step) {
    const double time = (low + high) / 2;
    double carried = 0;
    bool possible = true;
    for (const double link : links) {
      if (time * link < 1) possible = false;
      carried += std::max(0.0, time * link - 1) / (workers - 2);
    }
    (possible && carried >= 1 ? high : low) = time;
  }
  return high;
}

TEST(PlacementTest, LinksAreBusyForAsShortAsTheyCanBe) {
  std::mt19937 random(1);
  const auto uniform = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  for (int run = 0; run < 200; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    const int workers = std::uniform_int_distribution<int>(3, 12)(random);
    Job job = JobWith(workers, workers);
    std::vector<double> links(workers, 1);
    for (int i = 0; i < workers; ++i) {
      if (uniform(0, 1) < 0.6) continue;
      links[i] = std::exp(uniform(std::log(0.05), std::log(4)));
      SetLink(i, links[i], job);
    }
    const double longest = LongestLink(LoadsOf(job), links);
    const double shortest = ShortestTime(links);
    EXPECT_GE(longest, shortest * 0.9999);
    // A piece too many, on the slowest link.
    const double piece = workers / static_cast<double>(kPieces);
    EXPECT_LE(longest, shortest + piece / *std::min_element(links.begin(), links.end()));
  }
}

TEST(PlacementTest, ASlowLinkGetsLess) {
  Job job = JobWith(4, 4);
  SetLink(2, 0.8, job);
  // T = (2 + 4) / 3.8, x = (T - 1) / 2, and (0.8 T - 1) / 2.
  const std::vector<int64_t> loads = LoadsOf(job);
  EXPECT_NEAR(static_cast<double>(loads[0]), 0.2895 * kPiece * kPieces, 2.0 * kPiece);
  EXPECT_NEAR(static_cast<double>(loads[2]), 0.1316 * kPiece * kPieces, 2.0 * kPiece);
  SetLink(1, 0.1, job);
  EXPECT_EQ(LoadsOf(job)[1], 0);
}

// Of two workers each link carries all of the model, whoever owns it; and a server on a machine of
// its own shares no worker's link.
TEST(PlacementTest, ASlowLinkThatChangesNothingChangesNothing) {
  Job two = JobWith(2, 2);
  SetLink(0, 0.1, two);
  EXPECT_EQ(LoadsOf(two)[0], LoadsOf(two)[1]);
  Job apart = JobWith(4, 4);
  SetLink(0, 0.1, apart);
  apart.mutable_cluster()->mutable_network()->set_colocated(false);
  EXPECT_EQ(LoadsOf(apart)[0], LoadsOf(apart)[1]);
  Job fewer = JobWith(8, 4);
  SetLink(6, 0.1, fewer);
  EXPECT_EQ(LoadsOf(fewer)[0], LoadsOf(fewer)[3]);
}

// All together, of the spare ones more.
TEST(PlacementTest, SpareServersAndSlowLinks) {
  Job job = JobWith(4, 6);
  SetLink(3, 0.1, job);
  job.mutable_communication()->set_lanes(4);
  const std::vector<int64_t> loads = LoadsOf(job);
  EXPECT_EQ(loads[3], 0);
  EXPECT_GT(loads[0], 0);
  EXPECT_GT(loads[4], 2 * loads[0]);
  EXPECT_EQ(loads[4], loads[5]);
}

}  // namespace
}  // namespace poseidon
