// What `poseidon experiment` says while it works.
#include "cli/output/experiment_progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace poseidon {
namespace {

TEST(ExperimentProgressTest, TimesAreRoundedOnce) {
  EXPECT_EQ(RoughTime(Seconds(0.04)), "0.0 s");
  EXPECT_EQ(RoughTime(Seconds(9.94)), "9.9 s");
  EXPECT_EQ(RoughTime(Seconds(9.96)), "10 s");
  EXPECT_EQ(RoughTime(Seconds(59.4)), "59 s");
  EXPECT_EQ(RoughTime(Seconds(59.6)), "1 min 0 s");
  EXPECT_EQ(RoughTime(Seconds(119.7)), "2 min 0 s");
  EXPECT_EQ(RoughTime(Seconds(80)), "1 min 20 s");
  EXPECT_EQ(RoughTime(Seconds(3599.8)), "1.0 h");
}

TEST(ExperimentProgressTest, TheTimeLeftIsInProportionToTheWork) {
  ExperimentPoint point;
  point.net = "net";
  point.system = "ring";
  point.job.mutable_cluster()->set_workers(4);
  std::ostringstream out;
  ExperimentProgress progress(out, {&point, &point, &point}, Seconds(100));
  PointResult result;
  result.iteration = 0.02;
  result.compute = 0.01;
  progress.Done(point, result, Seconds(4), Seconds(130));
  EXPECT_NE(out.str().find("[1/3] net, ring, 4 workers, 10Gbps: 20.0 ms, speedup 2.00 of 4 (4.0 s; "
                           "about 1 min 0 s left)"),
            std::string::npos)
      << out.str();
  progress.Failed(point, "a reason");
  EXPECT_NE(out.str().find("[2/3] net, ring, 4 workers, 10Gbps: failed: a reason\n"),
            std::string::npos)
      << out.str();
  EXPECT_EQ(progress.failures(), 1u);
}

}  // namespace
}  // namespace poseidon
