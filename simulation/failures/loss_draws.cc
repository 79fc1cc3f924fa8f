#include "simulation/failures/loss_draws.h"

#include <glog/logging.h>

#include <cmath>

namespace poseidon {
namespace {

// In (0, 1]; the standard library's distributions are not the same everywhere.
double Uniform(std::mt19937_64& random) {
  constexpr int kMantissa = 53;
  return std::ldexp(static_cast<double>((random() >> (64 - kMantissa)) + 1), -kMantissa);
}

}  // namespace

LossDraws::LossDraws(double mtbf, uint64_t seed, const std::vector<NodeId>& nodes)
    : mtbf_(mtbf), random_(seed) {
  for (const NodeId& node : nodes) Replace(node, 0);
}

NodeLoss LossDraws::Next() {
  CHECK(!losses_.empty());
  const NodeLoss loss = losses_.top();
  losses_.pop();
  return loss;
}

void LossDraws::Replace(const NodeId& node, double begin) {
  losses_.push({begin - mtbf_ * std::log(Uniform(random_)), node});
}

}  // namespace poseidon
