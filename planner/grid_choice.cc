#include "planner/grid_choice.h"

#include <algorithm>
#include <utility>

#include "planner/cost/exchange_tables.h"
#include "proto/bucket.h"
#include "proto/compatibility.h"

namespace poseidon {
namespace {

// Of the best by estimate, so many are predicted.
constexpr size_t kPredicted = 3;

// Grids of more dimensions are named in a config, if at all; either algorithm goes along all.
constexpr size_t kMostMixed = 3;

// The grid of these sizes with every combination of algorithms.
void AddAll(const std::vector<int>& sizes, std::vector<Grid>& grids) {
  const unsigned all = (1U << sizes.size()) - 1;
  const bool mixed = sizes.size() <= kMostMixed;
  for (unsigned halving = 0; halving <= all; ++halving) {
    if (!mixed && halving != 0 && halving != all) continue;
    Grid grid;
    bool alike = false;  // of two workers a ring does what halving and doubling does
    for (size_t d = 0; d < sizes.size(); ++d) {
      const bool halves = (halving >> d & 1U) != 0;
      alike = alike || (halves && sizes[d] <= 2);
      grid.push_back({sizes[d], halves ? HALVING_DOUBLING : RING});
    }
    if (!alike) grids.push_back(std::move(grid));
  }
}

}  // namespace

std::vector<Grid> GridCandidates(int workers, const std::vector<int>& named) {
  std::vector<Grid> grids;
  if (!named.empty()) {
    AddAll(named, grids);
    return grids;
  }
  for (int a = 2; a <= workers / 2; ++a) {
    if (workers % a != 0) continue;
    const int rest = workers / a;
    AddAll({a, rest}, grids);
    for (int b = a; b <= rest / b; ++b) {
      if (rest % b == 0) AddAll({a, b, rest / b}, grids);
    }
  }
  if (grids.empty()) AddAll(SquareGrid(workers), grids);
  return grids;
}

std::vector<Grid> GridsFor(const InformationBook& book, const Communication& communication) {
  return GridCandidates(static_cast<int>(book.Query(Property::kWorkers)),
                        {communication.grid().begin(), communication.grid().end()});
}

std::string GridText(const Plan& plan) {
  std::string text;
  for (const GridDimension& dimension : plan.grid()) {
    text += (text.empty() ? "" : " x ") + std::to_string(dimension.size()) + " (" +
            SchemeName(dimension.algorithm()) + ")";
  }
  return text;
}

void SetGrid(const Grid& grid, Plan& plan) {
  if (grid.empty()) return;
  plan.clear_grid();
  for (const GridChoice& choice : grid) {
    GridDimension& dimension = *plan.add_grid();
    dimension.set_size(choice.size);
    dimension.set_algorithm(choice.algorithm);
  }
}

std::vector<Grid> BestByEstimate(const Predictor& predictor, const Plan& plan,
                                 const std::vector<Grid>& candidates, size_t most) {
  std::vector<std::pair<double, const Grid*>> estimated;
  Plan other = plan;
  for (const Grid& grid : candidates) {
    SetGrid(grid, other);
    estimated.emplace_back(predictor.Estimate(other).seconds, &grid);
  }
  std::stable_sort(estimated.begin(), estimated.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Grid> best;
  for (const auto& [seconds, grid] : estimated) {
    if (best.size() == most) break;
    best.push_back(*grid);
  }
  return best;
}

Grid BestGrid(Predictor& predictor, const Plan& plan, const std::vector<Grid>& candidates,
              double most) {
  // What is too large for predictions would be compared with estimates.
  if (MessagesPerIteration(plan, predictor.cluster()) > kMostMessages) return {};
  double least = most;
  const auto is_best = [&](const Plan& other) {
    if (MessagesPerIteration(other, predictor.cluster()) > kMostMessages) return false;
    if (predictor.LeastSeconds(other) >= least) return false;
    const double seconds = predictor.Predict(other, least).seconds;
    if (seconds >= least) return false;
    least = seconds;
    return true;
  };
  is_best(plan);
  Grid best;
  Plan other = plan;
  for (const Grid& grid : BestByEstimate(predictor, plan, candidates, kPredicted)) {
    SetGrid(grid, other);
    if (is_best(other)) best = grid;
  }
  return best;
}

}  // namespace poseidon
