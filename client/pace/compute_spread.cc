#include "client/pace/compute_spread.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/arithmetic/median.h"

namespace poseidon {
namespace {

constexpr size_t kFewest = 10;
// Below it, what happens to a pass is as likely its layer's own.
constexpr double kShortestStall = 1e-3;
// A normal distribution has one of 10^15 beyond it; real ones have more, which are few enough.
constexpr double kDeviations = 8;
// Of an iteration's time, squared: beyond it, differences of a pass are not beside the iteration's.
constexpr double kMostOfOnePass = 0.95;

// As much as a job config takes.
constexpr double kMostSpread = 1;

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// From the differences of neighbors, which slow changes do not show in (von Neumann, Kent,
// Bellinson, Hart: The mean square successive difference, 1941).
double Variance(const std::vector<double>& values) {
  double sum = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    sum += (values[i] - values[i - 1]) * (values[i] - values[i - 1]);
  }
  return sum / 2 / static_cast<double>(values.size() - 1);
}

struct Stalls {
  int64_t count = 0;
  double seconds = 0;
};

// Replaces what was stalled by the median.
Stalls TakeStalls(std::vector<double>& values) {
  constexpr double kDeviationOfMedian = 1.4826;  // a normal distribution's, to the median deviation
  const double median = Median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  const double most =
      std::max(kShortestStall, kDeviations * kDeviationOfMedian * Median(std::move(deviations)));
  Stalls stalls;
  for (double& value : values) {
    if (value - median <= most) continue;
    ++stalls.count;
    stalls.seconds += value - median;
    value = median;
  }
  return stalls;
}

// By pass instead of by iteration.
std::vector<std::vector<double>> Turned(std::span<const std::vector<double>> iterations) {
  std::vector<std::vector<double>> passes(iterations.front().size());
  for (const std::vector<double>& iteration : iterations) {
    for (size_t p = 0; p < passes.size(); ++p) passes[p].push_back(iteration[p]);
  }
  return passes;
}

}  // namespace

std::optional<Disturbance> DisturbanceOf(std::span<const std::vector<double>> iterations) {
  if (iterations.size() < kFewest) return std::nullopt;
  std::vector<std::vector<double>> passes = Turned(iterations);
  Stalls stalls;
  double all = 0;
  for (std::vector<double>& pass : passes) {
    const Stalls found = TakeStalls(pass);
    stalls.count += found.count;
    stalls.seconds += found.seconds;
    all += Mean(pass) * static_cast<double>(pass.size());
  }
  if (all <= 0) return std::nullopt;
  // With variances a of an iteration and b of a pass, to the squares of their means, that of a pass
  // is a + b, and that of the whole iteration a + b S, where S is the sum of the squares of the
  // passes' shares of it. Both are measured, the first over all passes by the squares of their
  // times, for so much does each count in the second.
  std::vector<double> whole(iterations.size());
  double variances = 0;
  double squares = 0;
  for (const std::vector<double>& pass : passes) {
    for (size_t i = 0; i < whole.size(); ++i) whole[i] += pass[i];
    variances += Variance(pass);
    squares += Mean(pass) * Mean(pass);
  }
  const double square = Mean(whole) * Mean(whole);
  const double of_pass = variances / squares;
  const double of_whole = Variance(whole) / square;
  // One pass alone can't be told from its iteration.
  const double shares = squares / square;
  const double layer =
      shares < kMostOfOnePass ? std::max(0.0, (of_pass - of_whole) / (1 - shares)) : 0;
  Disturbance disturbance;
  const double whole_alone = std::max(0.0, of_whole - layer * shares);
  disturbance.set_layer_spread(std::min(kMostSpread, std::sqrt(layer)));
  disturbance.set_iteration_spread(std::min(kMostSpread, std::sqrt(whole_alone)));
  if (stalls.count > 0) {
    const auto count = static_cast<double>(stalls.count);
    disturbance.set_stall_seconds(stalls.seconds / count);
    disturbance.set_stall_interval_seconds(std::max(all / count, disturbance.stall_seconds()));
  }
  return disturbance;
}

void ComputeSpread::Add(double seconds, int64_t images) {
  if (seconds <= 0 || images <= 0) return;
  if (++seen_ <= kSkipped) return;
  images_ = images;
  const double each = seconds / static_cast<double>(images);
  if (sample_.size() < kSample) return sample_.push_back(each);
  // Vitter: Random sampling with a reservoir, TOMS 1985, algorithm R.
  const uint64_t place = random_.Below(static_cast<uint64_t>(seen_ - kSkipped));
  if (place < kSample) sample_[place] = each;
}

std::optional<wire::ComputePace> ComputeSpread::Pace() const {
  std::vector<std::vector<double>> iterations;
  std::vector<double> seconds;
  for (const double each : sample_) {
    seconds.push_back(each * static_cast<double>(images_));
    iterations.push_back({seconds.back()});
  }
  const std::optional<Disturbance> disturbance = DisturbanceOf(iterations);
  if (!disturbance) return std::nullopt;
  constexpr double kMilliseconds = 1000;
  wire::ComputePace pace;
  pace.set_iteration_ms(kMilliseconds * Median(seconds));
  pace.set_spread(disturbance->iteration_spread());
  pace.set_iterations(static_cast<int64_t>(seconds.size()));
  pace.set_stall_ms(kMilliseconds * disturbance->stall_seconds());
  if (disturbance->stall_interval_seconds() > 0) {
    pace.set_stalls(std::llround(Mean(seconds) * static_cast<double>(seconds.size()) /
                                 disturbance->stall_interval_seconds()));
  }
  return pace;
}

}  // namespace poseidon
