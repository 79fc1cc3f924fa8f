#include "scheduler/link_reports.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/units.h"

namespace poseidon {
namespace {

wire::LinkReport Report(int distance, double latency, double goodput) {
  wire::LinkReport report;
  wire::LinkMeasurement* link = report.add_links();
  link->set_distance(distance);
  link->set_latency_seconds(latency);
  link->set_goodput_bytes_per_second(goodput);
  return report;
}

TEST(LinkReportsTest, TheSlowestKindOfLinkCounts) {
  std::vector<wire::LinkReport> reports;
  // Of four workers one was busy while it measured; links of distance 2 cross a slower switch.
  for (const double goodput : {1e9, 1e9, 1e9, 1e8}) {
    reports.push_back(Report(1, 40e-6, goodput));
    reports.push_back(Report(2, 60e-6, goodput / 2));
  }
  Network described;
  described.set_colocated(false);
  const Network network = NetworkOf(reports, described);
  EXPECT_EQ(ParseBitRate(network.bandwidth()), 4000000000);
  EXPECT_EQ(network.goodput_share(), 1);
  // Of which a message's cost is 20.
  EXPECT_EQ(ParseDuration(network.latency()), std::chrono::microseconds(40));
  EXPECT_FALSE(network.colocated());
  described.set_message_cost("25us");
  EXPECT_EQ(ParseDuration(NetworkOf(reports, described).latency()), std::chrono::microseconds(35));
  EXPECT_EQ(NetworkOf(reports, described).message_cost(), "25us");
}

TEST(LinkReportsTest, LatencyIsNeverNegative) {
  EXPECT_EQ(ParseDuration(NetworkOf({Report(1, 1e-6, 1e9)}, {}).latency()), Duration::zero());
}

TEST(LinkReportsTest, OnlyPlausibleOnesCount) {
  EXPECT_TRUE(IsPlausible(Report(1, 0, 1), 2));
  EXPECT_TRUE(IsPlausible({}, 1));
  EXPECT_FALSE(IsPlausible(Report(2, 0, 1), 2));
  EXPECT_FALSE(IsPlausible(Report(0, 0, 1), 2));
  EXPECT_FALSE(IsPlausible(Report(1, -1e-6, 1), 2));
  EXPECT_FALSE(IsPlausible(Report(1, NAN, 1), 2));
  EXPECT_FALSE(IsPlausible(Report(1, 0, 0), 2));
  EXPECT_FALSE(IsPlausible(Report(1, 0, NAN), 2));
  EXPECT_FALSE(IsPlausible(Report(1, 0, INFINITY), 2));
  // The most that a config's network may have, as the plan's has it then.
  EXPECT_TRUE(IsPlausible(Report(1, 0, 1e15 / 8), 2));
  EXPECT_FALSE(IsPlausible(Report(1, 0, 1.01e15 / 8), 2));
}

}  // namespace
}  // namespace poseidon
