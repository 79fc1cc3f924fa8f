#include "cli/output/experiment_progress.h"

#include <cmath>

#include "cli/output/table.h"
#include "core/time.h"
#include "experiments/experiment_points.h"
#include "experiments/experiment_results.h"

namespace poseidon {
namespace {

// How long points take, one against another: a worker's messages grow with the layers and, under
// many schemes, with the other workers. Good enough to say whether it is seconds or hours.
double WorkOf(const ExperimentPoint& point) {
  const double workers = point.job.cluster().workers();
  return workers * std::sqrt(workers) * (1 + point.model.layers_size());
}

}  // namespace

ExperimentProgress::ExperimentProgress(std::ostream& out,
                                       const std::vector<const ExperimentPoint*>& points,
                                       Time start)
    : out_(out), count_(points.size()), start_(start) {
  for (const ExperimentPoint* point : points) work_ += WorkOf(*point);
}

void ExperimentProgress::Begin(const ExperimentPoint& point) {
  ++finished_;
  done_ += WorkOf(point);
  const std::string all = std::to_string(count_);
  const std::string number = std::to_string(finished_);
  out_ << '[' << std::string(all.size() - number.size(), ' ') << number << '/' << all << "] "
       << Describe(point) << ": ";
}

void ExperimentProgress::Done(const ExperimentPoint& point, const PointResult& result,
                              Duration took, Time now) {
  Begin(point);
  const Cluster& cluster = point.job.cluster();
  out_ << Digits(kMillisecondsPerSecond * result.iteration, 1) << " ms, speedup "
       << Digits(SpeedupOf(point, result), 2) << " of "
       << cluster.workers() * cluster.devices_per_worker();
  if (result.goodput) out_ << ", goodput " << Digits(100 * *result.goodput, 2) << '%';
  out_ << " (" << RoughTime(took);
  if (finished_ < count_) {
    const double left = ToSeconds(now - start_) * (work_ - done_) / done_;
    out_ << "; about " << RoughTime(Seconds(left)) << " left";
  }
  out_ << ')' << std::endl;
}

void ExperimentProgress::Failed(const ExperimentPoint& point, const std::string& reason) {
  ++failures_;
  Begin(point);
  out_ << "failed: " << reason << std::endl;
}

std::string RoughTime(Duration duration) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  const double exact = ToSeconds(duration);
  if (exact < 9.95) return Digits(exact, 1) + " s";
  const double seconds = std::round(exact);  // so that there is no "1 min 60 s"
  if (seconds < kMinute) return Digits(seconds, 0) + " s";
  if (seconds < kHour) {
    const double minutes = std::floor(seconds / kMinute);
    return Digits(minutes, 0) + " min " + Digits(seconds - kMinute * minutes, 0) + " s";
  }
  return Digits(seconds / kHour, 1) + " h";
}

}  // namespace poseidon
