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

Schedule ScheduleOf(const Plan& plan, Scheme scheme, int variant, int64_t floats, int rank) {
  return AllReduceSchedule(scheme, plan, variant, {0, floats}, rank, plan.workers());
}

// How the first worker and `peer` exchange: along a ring or in pairs.
Scheme AlgorithmBetween(const Plan& plan, Scheme scheme, int peer) {
  if (scheme != TORUS) return scheme;
  int64_t stride = 1;
  for (const GridDimension& dimension : plan.grid()) {
    if (peer < stride * dimension.size()) return dimension.algorithm();
    stride *= dimension.size();
  }
  return RING;
}

// To the base of 2, rounded down.
int LogarithmOf(int number) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(number))) - 1;
}

// To whom representative `rank` of so many sends what the first of all workers sends to `peer`.
int PeerOfRepresentative(const Plan& plan, Scheme scheme, int peer, int rank, int representatives) {
  if (representatives == 1) return 0;
  const int distance = LogarithmOf(std::max(peer, 1));
  const int bits = LogarithmOf(representatives);
  if (AlgorithmBetween(plan, scheme, peer) == RING) {
    return (rank + 1 + distance % (representatives - 1)) % representatives;
  }
  return rank ^ (1 << distance % bits);
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

  ReduceShape shape = representatives_ == 0 ? OfAll(plan, scheme, variant, scaled)
                                            : OfRepresentatives(plan, scheme, variant, scaled);
  return shapes_.emplace(key, std::move(shape)).first->second;
}

ReduceShape ReduceShapes::OfAll(const Plan& plan, Scheme scheme, int variant,
                                int64_t floats) const {
  ReduceShape shape;
  std::vector<Awaited> awaited;
  for (int rank = 0; rank < plan.workers(); ++rank) {
    const Schedule schedule = ScheduleOf(plan, scheme, variant, floats, rank);
    shape.push_back(Convert(schedule, floats));
    awaited.emplace_back(schedule);
  }
  for (int rank = 0; rank < plan.workers(); ++rank) {
    for (ShapeOperation& operation : shape[rank]) {
      if (!operation.send) continue;
      operation.awaited_as = awaited[operation.peer].Find(rank, operation.awaited_as);
      operation.adds = shape[operation.peer][operation.awaited_as].adds;
    }
  }
  return shape;
}

ReduceShape ReduceShapes::OfRepresentatives(const Plan& plan, Scheme scheme, int variant,
                                            int64_t floats) const {
  ShapeOperations first = Convert(ScheduleOf(plan, scheme, variant, floats, 0), floats);
  std::map<int, Awaited> awaited;  // by rank
  for (ShapeOperation& operation : first) {
    if (!operation.send) continue;
    const int peer = operation.peer;
    if (!awaited.contains(peer)) {
      awaited.emplace(peer, ScheduleOf(plan, scheme, variant, floats, peer));
    }
    operation.awaited_as = awaited.at(peer).Find(0, operation.awaited_as);
    // The peer's operations are this one's, too.
    operation.adds = first[operation.awaited_as].adds;
  }
  ReduceShape shape(representatives_, first);
  for (int rank = 0; rank < representatives_; ++rank) {
    for (ShapeOperation& operation : shape[rank]) {
      operation.peer = PeerOfRepresentative(plan, scheme, operation.peer, rank, representatives_);
    }
  }
  return shape;
}

}  // namespace poseidon
