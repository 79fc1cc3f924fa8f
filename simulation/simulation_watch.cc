#include "simulation/simulation_watch.h"

#include <algorithm>
#include <chrono>

#include "core/steady_now.h"
#include "simulation/simulation_size.h"

namespace poseidon {
namespace {

// Messages from one look at the clock to the next: milliseconds, and seconds where each costs a
// thousand times as much, as with many nodes.
constexpr int64_t kMessagesBetween = 1 << 11;
constexpr Duration kBetween = std::chrono::milliseconds(100);
constexpr double kMostOfMemory = 0.9;

}  // namespace

SimulationWatch::SimulationWatch(const SimulationControl& control, const Cluster& cluster,
                                 int layers, int64_t iterations)
    : control_(control),
      cluster_(cluster),
      iterations_(iterations),
      node_memory_(NodeMemory(cluster, layers, iterations)),
      memory_before_(ResidentMemory()) {
  Check(node_memory_);
}

void SimulationWatch::OnPlan(const Plan& plan) {
  expected_ = DataMessages(plan) * static_cast<double>(iterations_);
  Check(node_memory_ + MessageMemory(plan));
}

void SimulationWatch::OnMessage(const Envelope& envelope) {
  if (envelope.to.node.role == Role::kThisNode) return;
  if (envelope.to.lane >= kFirstDataLane) ++data_messages_;
  if (++messages_ % kMessagesBetween != 0) return;
  const Time now = SteadyNow();
  if (now < next_) return;
  next_ = now + kBetween;
  // Whatever was estimated: rather an end with a reason than a machine that swaps.
  const double taken = static_cast<double>(ResidentMemory() - memory_before_);
  if (taken > kMostOfMemory * static_cast<double>(control_.memory)) {
    CheckTaken(taken / kMostOfMemory);
  }
  if (control_.progress) control_.progress({messages_, Share()});
}

double SimulationWatch::Share() const {
  return expected_ > 0 ? std::min(1.0, static_cast<double>(data_messages_) / expected_) : 0;
}

void SimulationWatch::Check(double bytes) const {
  CheckSimulationMemory(cluster_, iterations_, bytes, control_.memory, control_.simulations);
}

void SimulationWatch::CheckTaken(double bytes) const {
  if (control_.simulations == 1) return Check(bytes);
  CheckMemoryOfSimulations(bytes, control_.memory);  // which has taken it nobody knows
}

}  // namespace poseidon
