#include "planner/grid_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/job_plan.h"
#include "planner/planner.h"
#include "planner/time_planner.h"
#include "tests/unit/planner/reference_models.h"

namespace poseidon {
namespace {

using testing::Contains;
using testing::Each;

Job TorusJob(int workers, const char* latency) {
  Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_servers(1);
  job.mutable_cluster()->mutable_network()->set_latency(latency);
  job.mutable_communication()->set_policy(Communication::ALL_TORUS);
  job.mutable_communication()->set_lanes(1);
  return job;
}

Plan PlanOf(const ModelSpec& model, const Job& job) {
  return PlanJob(InformationBook(model, job.cluster()), job);
}

TEST(GridChoiceTest, CandidatesHaveAllWorkersAndNothingTwice) {
  for (const int workers : {1, 2, 5, 8, 12, 36, 64, 100, 1024}) {
    std::vector<Grid> grids = GridCandidates(workers, {});
    ASSERT_FALSE(grids.empty());
    for (const Grid& grid : grids) {
      int product = 1;
      for (const GridChoice& dimension : grid) product *= dimension.size;
      EXPECT_EQ(product, workers);
      EXPECT_EQ(std::count(grids.begin(), grids.end(), grid), 1);
    }
  }
  EXPECT_THAT(GridCandidates(16, {}), Contains(Grid{{2, RING}, {8, HALVING_DOUBLING}}));
  EXPECT_THAT(GridCandidates(16, {}), Contains(Grid{{8, RING}, {2, RING}}));
  EXPECT_THAT(GridCandidates(16, {}), Contains(Grid{{2, RING}, {2, RING}, {4, RING}}));
}

TEST(GridChoiceTest, NamedSizesAreKept) {
  for (const Grid& grid : GridCandidates(32, {4, 8})) {
    ASSERT_EQ(grid.size(), 2u);
    EXPECT_EQ(grid[0].size, 4);
    EXPECT_EQ(grid[1].size, 8);
  }
  EXPECT_EQ(GridCandidates(32, {4, 8}).size(), 4u);
  Job job = TorusJob(32, "5ms");
  job.mutable_communication()->add_grid(4);
  job.mutable_communication()->add_grid(8);
  EXPECT_EQ(GridText(PlanOf(GoogLeNet(32), job)), "4 (ring) x 8 (ring)");
}

TEST(GridChoiceTest, NoCandidateThatWasPredictedIsFaster) {
  const ModelSpec model = GoogLeNet(32);
  for (const int workers : {8, 12}) {
    for (const char* latency : {"10us", "5ms"}) {
      SCOPED_TRACE(std::to_string(workers) + ", " + latency);
      const Job job = TorusJob(workers, latency);
      const Plan plan = PlanOf(model, job);
      const InformationBook book(model, job.cluster());
      Predictor predictor(book, ClusterOf(job));
      const double planned = predictor.Predict(plan).seconds;
      Plan square = MakePlan(book, job.communication());
      EXPECT_LE(planned, predictor.Predict(square).seconds);
      for (const Grid& grid :
           BestByEstimate(predictor, square, GridsFor(book, job.communication()), 3)) {
        SetGrid(grid, square);
        EXPECT_LE(planned, predictor.Predict(square).seconds);
      }
    }
  }
}

TEST(GridChoiceTest, LongDelaysWantFewSteps) {
  const Plan plan = PlanOf(GoogLeNet(32), TorusJob(16, "5ms"));
  std::vector<Scheme> algorithms;
  for (const GridDimension& dimension : plan.grid()) {
    if (dimension.size() > 2) algorithms.push_back(dimension.algorithm());
  }
  EXPECT_THAT(algorithms, Each(HALVING_DOUBLING)) << GridText(plan);
}

TEST(GridChoiceTest, TimeIsNoSlowerThanTheTorusWithItsBestGrid) {
  const ModelSpec model = GoogLeNet(32);
  Job job = TorusJob(12, "1ms");
  const Plan torus = PlanOf(model, job);
  job.mutable_communication()->set_policy(Communication::TIME);
  EXPECT_LE(PlanOf(model, job).iteration_ms(), torus.iteration_ms() + 1e-6);
}

}  // namespace
}  // namespace poseidon
