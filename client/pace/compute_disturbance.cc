#include "client/pace/compute_disturbance.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "core/time.h"
#include "core/units.h"

namespace poseidon {
namespace {

bool Disturbs(const Disturbance& disturbance) {
  return Varies(disturbance) || ParseDuration(disturbance.layer_cost()) > Duration();
}

// Log-normal with mean 1 and this standard deviation.
double Factor(double spread, Random& random) {
  if (spread == 0) return 1;
  const double variance = std::log1p(spread * spread);
  return std::exp(std::sqrt(variance) * random.Gaussian() - variance / 2);
}

double Exponential(Random& random) { return -std::log(1 - random.Uniform()); }

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g%%", 100 * share);
  return text;
}

std::string Roughly(double seconds) {
  char text[32];
  if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.2g ms", kMillisecondsPerSecond * seconds);
  } else {
    std::snprintf(text, sizeof text, "%.2g s", seconds);
  }
  return text;
}

}  // namespace

bool Varies(const Disturbance& disturbance) {
  return disturbance.iteration_spread() > 0 || disturbance.layer_spread() > 0 ||
         disturbance.stall_interval_seconds() > 0;
}

double StallFactor(const Disturbance& disturbance) {
  if (disturbance.stall_interval_seconds() <= 0) return 1;
  return 1 + disturbance.stall_seconds() / disturbance.stall_interval_seconds();
}

Disturbance MeasuredDisturbance() {
  Disturbance measured;
  measured.set_iteration_spread(0.02);
  measured.set_layer_spread(0.03);
  return measured;
}

void DisturbUnlessSaid(Cluster& cluster) {
  if (!cluster.has_disturbance()) *cluster.mutable_disturbance() = MeasuredDisturbance();
}

std::string DisturbanceText(const Disturbance& disturbance) {
  std::string text;
  const auto add = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (disturbance.iteration_spread() > 0) {
    add("iterations spread by " + Percent(disturbance.iteration_spread()));
  }
  if (disturbance.layer_spread() > 0) add("layers by " + Percent(disturbance.layer_spread()));
  if (disturbance.stall_interval_seconds() > 0) {
    add("a stall of " + Roughly(disturbance.stall_seconds()) + " every " +
        Roughly(disturbance.stall_interval_seconds()));
  }
  if (ParseDuration(disturbance.layer_cost()) > Duration()) {
    add(disturbance.layer_cost() + " beside each layer's pass");
  }
  return text.empty() ? "none" : text;
}

ComputeDisturbance::ComputeDisturbance(const Disturbance& disturbance, int devices, int local_steps)
    : disturbance_(disturbance),
      varies_(Disturbs(disturbance)),
      devices_(devices),
      iteration_spread_(disturbance.iteration_spread() / std::sqrt(local_steps)),
      layer_cost_(ToSeconds(ParseDuration(disturbance.layer_cost()))),
      moving_(1 / StallFactor(disturbance)) {}

void ComputeDisturbance::Begin(int rank, int64_t iteration) {
  seed_ = DeriveSeed(DeriveSeed(disturbance_.seed(), static_cast<uint64_t>(rank)),
                     static_cast<uint64_t>(iteration));
  Random random(seed_);
  factor_ = Factor(iteration_spread_, random);
  for (int device = 1; device < devices_; ++device) {
    factor_ = std::max(factor_, Factor(iteration_spread_, random));
  }
}

Duration ComputeDisturbance::Of(int pass, Duration planned) const {
  if (!varies_ || planned <= Duration()) return planned;
  const double seconds = ToSeconds(planned);
  Random random(DeriveSeed(seed_, static_cast<uint64_t>(pass)));
  const double computing =
      seconds * moving_ * factor_ * Factor(disturbance_.layer_spread(), random);
  return Seconds(computing + layer_cost_ + Stalls(seconds, random));
}

Duration ComputeDisturbance::MeanOf(Duration planned) const {
  return planned <= Duration() ? planned : planned + Seconds(layer_cost_);
}

Duration ComputeDisturbance::OfMany(int pass, Duration planned) const {
  if (!varies_ || planned <= Duration()) return planned;
  const double seconds = ToSeconds(planned);
  Random random(DeriveSeed(seed_, static_cast<uint64_t>(pass)));
  return Seconds(seconds * moving_ * factor_ + Stalls(seconds, random));
}

double ComputeDisturbance::Stalls(double seconds, Random& random) const {
  if (disturbance_.stall_interval_seconds() <= 0) return 0;
  const double computed = seconds * moving_ * devices_ / disturbance_.stall_interval_seconds();
  // So many are as good as their normal distribution, whose sum of exponential lengths has twice
  // the variance of their number.
  constexpr double kMany = 1000;
  if (computed > kMany) {
    return (computed + std::sqrt(2 * computed) * random.Gaussian()) * disturbance_.stall_seconds();
  }
  double stalled = 0;
  double at = Exponential(random);
  while (at < computed) {
    stalled += Exponential(random);
    at += Exponential(random);
  }
  return stalled * disturbance_.stall_seconds();
}

}  // namespace poseidon
