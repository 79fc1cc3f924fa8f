#include "planner/cost/reduce_shapes.h"

#include <glog/logging.h>

#include <algorithm>
#include <bit>

#include "collectives/schedule.h"
#include "collectives/steps.h"

namespace poseidon {
namespace {

// From so many floats a worker on, chunks of one scheme differ in scale only; rounding to whole
// floats is below a percent then.
constexpr int64_t kFineFloats = 256;

ShapeOperations Convert(const Schedule& schedule, int64_t floats) {
  ShapeOperations operations;
  for (const Operation& operation : schedule) {
    if (operation.kind == Operation::Kind::kRound) continue;
    ShapeOperation converted;
    converted.send = operation.kind == Operation::Kind::kSend;
    converted.adds = operation.kind == Operation::Kind::kAdd;
    converted.peer = operation.peer;
    converted.awaited_as = operation.step;  // until all workers' schedules are known
    converted.share = static_cast<double>(operation.range.size) / static_cast<double>(floats);
    operations.push_back(converted);
  }
  return operations;
}

// A worker's schedule, and where in its shape it waits for what another one sends.
class Awaited {
 public:
  explicit Awaited(const Schedule& schedule) : steps_(schedule) {
    while (round_ < steps_.size() && steps_.At(round_).kind != Operation::Kind::kRound) ++round_;
  }

  int Find(int sender, int step) const {
    const std::optional<int> index = steps_.Awaiting(sender, step);
    CHECK(index) << "nobody waits for step " << step << " of worker " << sender;
    return *index - (*index > round_ ? 1 : 0);  // which is not in the shape
  }

 private:
  Steps steps_;
  int round_ = 0;
};

// Chunks whose indices differ by this have the same schedule.
int Variants(Scheme scheme, const Plan& plan) {
  if (scheme == TORUS) return std::max(plan.grid_size(), 1);
  // Halving and doubling's blocks are dealt to other workers in each chunk, but for powers of two.
  const bool alike = std::has_single_bit(static_cast<unsigned>(plan.workers()));
  return scheme == HALVING_DOUBLING && !alike ? plan.workers() : 1;
}

// What a schedule depends on besides the workers' number and the chunk.
std::string GridKey(Scheme scheme, const Plan& plan) {
  std::string key;
  if (scheme != TORUS) return key;
  for (const GridDimension& dimension : plan.grid()) key += dimension.SerializeAsString() + ';';
  return key;
}

}  // namespace

const ReduceShape& ReduceShapes::Get(const Plan& plan, Scheme scheme, int chunk, int64_t floats) {
  const int variant = chunk % Variants(scheme, plan);
  // Chunks of fewer floats than workers are priced as if each worker had one.
  const int64_t workers = plan.workers();
  const int64_t scaled = std::clamp(floats, workers, kFineFloats * workers);
  const auto key = std::tuple(scheme, GridKey(scheme, plan), variant, scaled);
  const auto found = shapes_.find(key);
  if (found != shapes_.end()) return found->second;

  std::vector<Schedule> schedules;
  const int ranks = first_only_ ? 1 : plan.workers();
  schedules.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    schedules.push_back(
        AllReduceSchedule(scheme, plan, variant, {0, scaled}, rank, plan.workers()));
  }
  ReduceShape shape;
  std::vector<Awaited> awaited;
  for (const Schedule& schedule : schedules) {
    shape.push_back(Convert(schedule, scaled));
    awaited.emplace_back(schedule);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (ShapeOperation& operation : shape[rank]) {
      if (!operation.send) continue;
      const int receiver = first_only_ ? 0 : operation.peer;
      // Around the ring the first gets from the last.
      const int sender = first_only_ ? plan.workers() - 1 : rank;
      operation.awaited_as = awaited[receiver].Find(sender, operation.awaited_as);
      operation.adds = shape[receiver][operation.awaited_as].adds;
    }
  }
  return shapes_.emplace(key, std::move(shape)).first->second;
}

}  // namespace poseidon
