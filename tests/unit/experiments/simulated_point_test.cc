// What is said of a point that was planned or simulated.
#include "experiments/simulated_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/unit/experiments/experiment_fixture.h"

namespace poseidon {
namespace {

// Planning takes seconds to minutes, and whoever presses Ctrl-C does not wait for it.
TEST_F(ExperimentTest, AStopEndsPlanningAsWellAsTheSimulation) {
  std::stop_source stopped;
  stopped.request_stop();
  ExperimentPoint point =
      Points(Replaced(kExperiment, "system: \"rows\" workers: 4", "system: \"time\" workers: 4"))
          .back();
  for (const bool plan_only : {true, false}) {
    point.plan_only = plan_only;
    try {
      SimulatePoint(point, stopped.get_token());
      ADD_FAILURE() << plan_only;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kInterrupted) << error.what();
    }
  }
}

// Though only the slowest one computes for as long as that has others wait.
TEST_F(ExperimentTest, PlannedWorkersAreAsBusyAsSimulatedOnes) {
  for (const std::string staleness : {"", "communication { staleness: -1 }"}) {
    SCOPED_TRACE(staleness);
    const std::vector<ExperimentPoint> points = Points(
        "name: \"t\" net { name: \"n\" replay { batch: 4"
        "   layers { name: \"a\" parameters: 1000000 forward_ms: 5 backward_ms: 10 }"
        "   layers { name: \"b\" parameters: 1000000 forward_ms: 2 backward_ms: 4 } } }"
        " system { name: \"s\" policy: \"ALL_PS\" " +
        staleness +
        " } sweep { system: \"s\" workers: 4 bandwidth: \"100Gbps\" communication { lanes: 1 }"
        "   cluster { disturbance { } } plan_only: true condition { name: \"slow\" known: true"
        "     deviation { worker: 1 compute_factor: 4 } } }");
    ASSERT_EQ(points.size(), 1);
    const PointResult planned = SimulatePoint(points[0]);
    ExperimentPoint simulating = points[0];
    simulating.plan_only = false;
    const PointResult simulated = SimulatePoint(simulating);
    EXPECT_NEAR(planned.iteration, simulated.iteration, 0.02 * simulated.iteration);
    EXPECT_NEAR(planned.busy, simulated.busy, 0.01);
  }
}

TEST_F(ExperimentTest, ARowOfLocalStepsIsOfOneStep) {
  const std::vector<ExperimentPoint> points = Points(
      "name: \"t\" net { name: \"n\" replay { batch: 4"
      "   layers { name: \"a\" parameters: 1000000 forward_ms: 5 backward_ms: 10 }"
      "   layers { name: \"b\" parameters: 1000000 forward_ms: 2 backward_ms: 4 } } }"
      " sweep { system: \"ring\" workers: 4 bandwidth: \"1Gbps\" cluster { disturbance { } }"
      "   communication { local_steps: 8 fragments: 2 overlap_steps: 1 } }");
  ASSERT_EQ(points.size(), 1);
  const PointResult simulated = SimulatePoint(points[0]);
  EXPECT_NEAR(simulated.predicted, simulated.iteration, 0.05 * simulated.iteration);
  ExperimentPoint planning = points[0];
  planning.plan_only = true;
  const PointResult planned = SimulatePoint(planning);
  EXPECT_EQ(planned.predicted, simulated.predicted);
  EXPECT_EQ(planned.iteration, planned.predicted);
  EXPECT_NEAR(planned.compute, 0.021, 1e-9);
  EXPECT_LT(planned.busy, 0.95) << "an exchange is waited for";
  EXPECT_NEAR(planned.busy, simulated.busy, 0.05);
  // 2 (P - 1) / P of the gradient each way, once in eight steps.
  EXPECT_NEAR(simulated.bytes_sent, 1.5 * 4 * 2000000 / 8, 100);
  EXPECT_NEAR(planned.bytes_sent, simulated.bytes_sent, 100);
  EXPECT_NEAR(planned.bytes_received, simulated.bytes_received, 100);
}

}  // namespace
}  // namespace poseidon
