#include "planner/lane_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/steady_now.h"
#include "planner/job_plan.h"
#include "proto/lanes.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

Job JobOf(int workers, const char* bandwidth, Communication::Policy policy) {
  Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_servers(workers);
  job.mutable_cluster()->mutable_network()->set_bandwidth(bandwidth);
  job.mutable_cluster()->set_flops(20e12);
  job.mutable_communication()->set_policy(policy);
  return job;
}

Plan PlanOf(const ModelSpec& model, const Job& job) {
  return PlanJob(InformationBook(model, job.cluster()), job);
}

TEST(LaneChoiceTest, AsFewAsComeWithinAHundredthOfMost) {
  const ModelSpec model = ResNet50(32);
  for (const Communication::Policy policy :
       {Communication::ALL_PS, Communication::ALL_RING, Communication::ALL_HALVING_DOUBLING,
        Communication::TIME}) {
    for (const char* bandwidth : {"1Gbps", "10Gbps", "100Gbps"}) {
      SCOPED_TRACE(Communication::Policy_Name(policy) + ", " + bandwidth);
      // Searches take seconds where nothing can be hidden.
      if (policy == Communication::TIME && bandwidth != std::string("100Gbps")) continue;
      Job job = JobOf(8, bandwidth, policy);
      const Plan plan = PlanOf(model, job);
      EXPECT_TRUE(plan.planned_lanes());
      job.mutable_communication()->set_lanes(4);
      EXPECT_LE(plan.iteration_ms(), 1.01 * PlanOf(model, job).iteration_ms());
      if (plan.lanes() == 1 || policy == Communication::TIME) continue;
      job.mutable_communication()->set_lanes(plan.lanes() / 2);
      EXPECT_GT(PlanOf(model, job).iteration_ms(), plan.iteration_ms());
    }
  }
}

TEST(LaneChoiceTest, MoreWhereLanesLimitAndOneWhereTheNetworkDoes) {
  const ModelSpec model = ResNet50(32);
  EXPECT_EQ(PlanOf(model, JobOf(8, "100Mbps", Communication::ALL_RING)).lanes(), 1);
  const Plan fast = PlanOf(model, JobOf(8, "100Gbps", Communication::ALL_PS));
  EXPECT_GT(fast.lanes(), 1);
  EXPECT_THAT(LanesText(fast), testing::HasSubstr(" data lanes, planned: 1 would take "));
}

TEST(LaneChoiceTest, CoresAllowSoMany) {
  const ModelSpec model = ResNet50(32);
  Job job = JobOf(8, "400Gbps", Communication::ALL_PS);
  job.mutable_cluster()->set_update_rate(4e8);
  const auto lanes = [&](int cores) {
    job.mutable_cluster()->set_cores(cores);
    return PlanOf(model, job).lanes();
  };
  EXPECT_EQ(lanes(2), 1);
  EXPECT_EQ(lanes(8), 2);
  EXPECT_GE(lanes(64), 4);
  EXPECT_EQ(PlanJob(InformationBook(model, job.cluster()).WithLanes(2), job).lanes(), 2);
  job.mutable_cluster()->set_cores(2);
  EXPECT_EQ(LanesText(PlanOf(model, job)), "1 data lane, as the machines have no cores for more");
}

TEST(LaneChoiceTest, ANamedNumberIsKept) {
  const ModelSpec model = GoogLeNet(32);
  Job job = JobOf(4, "100Mbps", Communication::ALL_PS);
  job.mutable_communication()->set_lanes(3);
  const Plan plan = PlanOf(model, job);
  EXPECT_EQ(plan.lanes(), 3);
  EXPECT_EQ(LanesText(plan), "3 data lanes, as given");
  EXPECT_EQ(OfferedLanes(job, 64), 3);
}

// A plan that computes for 10 ms and takes as long as is asked, which is never below.
Plan PlanTaking(int lanes, double iteration_ms) {
  Plan plan;
  plan.set_lanes(lanes);
  plan.set_compute_ms(10);
  plan.set_iteration_ms(iteration_ms);
  return plan;
}

TEST(LaneChoiceTest, SearchesSideBySideChooseAsOneAfterAnother) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int most = std::uniform_int_distribution<int>(1, 16)(random);
    std::map<int, double> times;
    for (int lanes = 1; lanes <= most; ++lanes) {
      times[lanes] = std::uniform_real_distribution<double>(10, 12)(random);
    }
    std::mutex mutex;
    std::set<int> asked;
    const auto choose = [&](int at_once) {
      asked.clear();
      return PlanWithLanes(most, at_once, [&](int lanes, const std::stop_token&) {
        const std::lock_guard lock(mutex);
        asked.insert(lanes);
        return PlanTaking(lanes, times.at(lanes));
      });
    };
    const Plan alone = choose(1);
    const std::set<int> needed = asked;
    for (const int at_once : {2, 3, 5}) {
      EXPECT_EQ(choose(at_once).SerializeAsString(), alone.SerializeAsString());
      EXPECT_TRUE(std::includes(asked.begin(), asked.end(), needed.begin(), needed.end()));
      EXPECT_LT(asked.size(), needed.size() + at_once);
    }
  }
}

Plan PlanOnceStopped(int lanes, const std::stop_token& stop) {
  const Time deadline = SteadyNow() + std::chrono::seconds(30);
  while (!stop.stop_requested() && SteadyNow() < deadline) std::this_thread::yield();
  EXPECT_TRUE(stop.stop_requested());
  return PlanTaking(lanes, 11);
}

TEST(LaneChoiceTest, SearchesThatNobodyNeedsAreStopped) {
  const Plan hidden = PlanWithLanes(4, 3, [&](int lanes, const std::stop_token& stop) {
    return lanes == 1 ? PlanTaking(1, 10) : PlanOnceStopped(lanes, stop);
  });
  EXPECT_EQ(hidden.lanes(), 1);
  EXPECT_EQ(hidden.other_lanes_size(), 0);
  const auto fails = [&](int lanes, const std::stop_token& stop) -> Plan {
    if (lanes == 2) throw ConfigError("no two");
    return lanes == 1 ? PlanTaking(1, 12) : PlanOnceStopped(lanes, stop);
  };
  EXPECT_THROW(PlanWithLanes(4, 3, fails), ConfigError);
}

TEST(LaneChoiceTest, AStopReachesAllSearchesAndBeginsNoOther) {
  for (const int at_once : {1, 3}) {
    std::stop_source stopped;
    std::atomic<int> asked = 0;
    const auto plan_for = [&](int lanes, const std::stop_token& stop) {
      ++asked;
      if (lanes == 1) stopped.request_stop();
      return PlanOnceStopped(lanes, stop);
    };
    EXPECT_EQ(PlanWithLanes(8, at_once, plan_for, stopped.get_token()).lanes(), 1);
    EXPECT_EQ(asked, at_once);
  }
}

// Computing takes next to no time, so that no exchange is hidden and all numbers are compared.
class LanesOfAJobTest : public testing::Test {
 protected:
  LanesOfAJobTest() {
    job_.mutable_cluster()->set_flops(1e15);
    model_.set_batch(32);
    AddInnerProduct("fc1", 1000, 1000, model_);
    AddInnerProduct("fc2", 1000, 1000, model_);
  }

  Plan Make(const JobPlanTrial& trial, const std::stop_token& stop,
            const SearchListener& searched) const {
    return PlanJob(InformationBook(model_, job_.cluster()), job_, trial, stop, searched);
  }

  Job job_ = JobOf(4, "100Gbps", Communication::TIME);
  ModelSpec model_;
};

// Others come and go with the cores of the machine that plans, and with its threads' order.
TEST_F(LanesOfAJobTest, TheSearchesThatWereComparedAreTold) {
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<int> searches;
  const Plan plan = Make({}, {}, [&](const SearchReport& report) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    searches.push_back(report.searches);
  });
  ASSERT_GE(plan.other_lanes_size(), 1);
  const std::vector<int> two_each(1 + plan.other_lanes_size(), 2);  // by priority and in order
  EXPECT_EQ(searches, two_each);
}

TEST_F(LanesOfAJobTest, APlanThatNobodyWantsIsNotTried) {
  std::stop_source stopped;
  stopped.request_stop();
  const auto trial = [](const Plan&, const Job&, const ModelSpec&, TrialLength) {
    ADD_FAILURE() << "was tried";
    return std::optional<double>();
  };
  Make(trial, stopped.get_token(), [](const SearchReport&) { ADD_FAILURE() << "was told of"; });
}

// The other times that people read beside it are a step's, too.
TEST(LaneChoiceTest, OfLocalStepsTheTextSaysWhatOneTakes) {
  Plan plan;
  plan.set_lanes(1);
  plan.set_planned_lanes(true);
  plan.set_local_steps(50);
  OtherLanes& other = *plan.add_other_lanes();
  other.set_lanes(2);
  other.set_iteration_ms(1000);
  EXPECT_EQ(LanesText(plan), "1 data lane, planned: 2 would take 20.00 ms a step");
}

// The lanes' times are of another network than the plan's.
TEST(LaneChoiceTest, WithTiersTheTextSaysThatOnlyTheOwnLinksCount) {
  for (const int cores : {2, 64}) {
    for (const double flops : {1e9, 20e12}) {
      Job job = JobOf(4, "100Gbps", Communication::TIME);
      job.mutable_cluster()->set_cores(cores);
      job.mutable_cluster()->set_flops(flops);
      Tier& tier = *job.mutable_cluster()->mutable_network()->add_tier();
      tier.set_members(2);
      tier.set_bandwidth("100Mbps");
      ModelSpec model;
      model.set_batch(32);
      AddInnerProduct("fc1", 1000, 1000, model);
      AddInnerProduct("fc2", 1000, 1000, model);
      const std::string text = LanesText(PlanOf(model, job));
      EXPECT_THAT(text, testing::HasSubstr(", planned for the machines' own links: by these alone "
                                           "1 would take "));
      EXPECT_THAT(text, testing::Not(testing::HasSubstr("cores")));
    }
  }
}

TEST(LaneChoiceTest, OneWhereNobodyKnowsTheNetwork) {
  const ModelSpec model = GoogLeNet(32);
  Job job = JobOf(4, "100Gbps", Communication::ALL_PS);
  EXPECT_EQ(OfferedLanes(job, 16), 4);
  job.mutable_cluster()->clear_network();
  EXPECT_EQ(PlanOf(model, job).lanes(), 1);
  EXPECT_EQ(OfferedLanes(job, 16), 1);
  job.mutable_communication()->set_policy(Communication::TIME);  // measures it
  EXPECT_EQ(OfferedLanes(job, 16), 4);
  job.mutable_cluster()->set_cores(8);
  EXPECT_EQ(OfferedLanes(job, 16), 2);
}

}  // namespace
}  // namespace poseidon
