// ComputeDisturbance: how long computing takes that the planned time says the mean of, where
// machines vary (Disturbance of proto/job.proto). One model for simulated workers and for replays,
// so that both take the same times.
//
//   ComputeDisturbance disturbance(cluster.disturbance(), devices, local_steps);
//   disturbance.Begin(rank, iteration);
//   const Duration time = disturbance.Of(pass, planned);
//
// With spreads s and t, stalls of mean length a at mean distances b, and a layer's cost c, a pass
// that is planned to take T takes
//
//   T / (1 + a/b) * F(s) * L(t) + c + the stalls in it,
//
// where F, one for the iteration, and L, one for the pass, are log-normal with mean 1, and stalls
// come as a Poisson process and last exponentially long. So but for c the mean is T, and what
// varies costs nothing on one machine; workers that wait for each other take the time of the
// slowest. A worker of several devices is as slow as the slowest of them in the iteration, and is
// stalled by each.
#pragma once

#include <cstdint>
#include <string>

#include "core/random.h"
#include "core/time.h"
#include "proto/job.pb.h"

namespace poseidon {

// What was measured of real nets on a CPU (docs/cost_model.md, "Disturbance").
Disturbance MeasuredDisturbance();
// Sets that, where the cluster does not say what varies.
void DisturbUnlessSaid(Cluster& cluster);

// Whether iterations take other times than those before; a layer's cost is always the same.
bool Varies(const Disturbance& disturbance);

// How many times as long as between stalls computing takes with them, in the mean: 1 + a/b, as
// below.
double StallFactor(const Disturbance& disturbance);

// "iterations spread by 2%, layers by 3%, a stall of 4 ms every 2.5 s"; "none".
std::string DisturbanceText(const Disturbance& disturbance);

// A value; not thread-safe. The same seed, rank, iteration and pass give the same time.
class ComputeDisturbance {
 public:
  // Nothing varies.
  ComputeDisturbance() = default;
  // `disturbance` is checked (proto/job_config.h). Of a worker with so many devices, and so many
  // local steps in an iteration, which vary each by itself.
  explicit ComputeDisturbance(const Disturbance& disturbance, int devices = 1, int local_steps = 1);

  void Begin(int rank, int64_t iteration);
  // `pass`: any number that is another one for each pass of an iteration. Passes that take no time
  // compute nothing, and stay so.
  Duration Of(int pass, Duration planned) const;
  // What Of takes in the mean, of a worker with one device.
  Duration MeanOf(Duration planned) const;
  // Of a stretch of computing over many layers' passes, whose own spreads even out.
  Duration OfMany(int pass, Duration planned) const;

 private:
  // Seconds of the stalls in so many of computing.
  double Stalls(double seconds, Random& random) const;

  Disturbance disturbance_;
  bool varies_ = false;
  int devices_ = 1;
  double iteration_spread_ = 0;
  double layer_cost_ = 0;  // seconds
  double moving_ = 1;      // share of the planned time that is none of stalls
  uint64_t seed_ = 0;      // of the iteration
  double factor_ = 1;      // likewise
};

}  // namespace poseidon
