// Which grid of workers a torus has where the job's config does not name it, and what goes along
// each of its dimensions: a ring, which takes few messages' latency only while it is short, or
// halving and doubling, whose steps grow with the logarithm of the dimension but whose partners
// must wait for each other.
//
//   GridCandidates(8, {})       // 2 x 4, 4 x 2 and 2 x 2 x 2, each with either in each dimension
//   GridCandidates(8, {2, 4})   // 2 x 4
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "planner/predictor.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

struct GridChoice {
  int size = 1;
  Scheme algorithm = RING;  // or HALVING_DOUBLING
  bool operator==(const GridChoice&) const = default;
};

// Its dimensions. Empty: as MakePlan makes it.
using Grid = std::vector<GridChoice>;

// All grids of two dimensions, those of three whose sizes ascend, and for a prime number of workers
// the line. `named` are the sizes that the job's config names, which are then the only ones.
std::vector<Grid> GridCandidates(int workers, const std::vector<int>& named);
// Those that the job allows.
std::vector<Grid> GridsFor(const InformationBook& book, const Communication& communication);

// "2 (ring) x 4 (halving-doubling)"; empty if the plan has none.
std::string GridText(const Plan& plan);

// Gives the plan that grid, unless it is empty. Nothing else of the plan depends on it.
void SetGrid(const Grid& grid, Plan& plan);

// Those of the candidates that are best for a plan with tori, by estimate, the best first.
std::vector<Grid> BestByEstimate(const Predictor& predictor, const Plan& plan,
                                 const std::vector<Grid>& candidates, size_t most);

// The one that is predicted to be fastest, of the best few by estimate; empty if that is the plan's
// own, or none is predicted to take less than `most` seconds.
Grid BestGrid(Predictor& predictor, const Plan& plan, const std::vector<Grid>& candidates,
              double most = std::numeric_limits<double>::infinity());

}  // namespace poseidon
