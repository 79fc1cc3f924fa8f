#include "experiments/point_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "launch/process_cluster.h"
#include "planner/cost/iteration_record.h"
#include "proto/bucket.h"
#include "simulation/training_simulation.h"

namespace poseidon {
namespace {

using Json = nlohmann::json;

// Seconds, mean over iterations and workers.
struct SteadyTimes {
  double iteration = 0;
  double exposed = 0;
};

SteadyTimes MiddleHalf(const std::vector<double>& durations, const std::vector<double>& exposed,
                       int warm_up) {
  std::vector<size_t> order(durations.size() - warm_up);
  std::iota(order.begin(), order.end(), warm_up);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return durations[a] < durations[b]; });
  const size_t begin = order.size() / 4;
  const size_t end = order.size() - begin;
  SteadyTimes times;
  for (size_t i = begin; i < end; ++i) {
    times.iteration += durations[order[i]] / kMillisecondsPerSecond;
    times.exposed += exposed[order[i]] / kMillisecondsPerSecond;
  }
  times.iteration /= static_cast<double>(end - begin);
  times.exposed /= static_cast<double>(end - begin);
  return times;
}

// Of one iteration that the workers take in the mean, what they take together: asynchronous ones do
// not wait for each other, so that their rates add up, as in a simulation.
double ShareOfMean(const Json& summary, int staleness) {
  const JointPace pace = PaceOf(staleness, /*alike=*/true);
  if (pace == JointPace::kTogether) return 1;
  // Of an image: the batch is the same for all.
  std::vector<double> seconds;
  for (const Json& worker : summary.at("workers")) {
    const auto images = worker.at("images").get<double>();
    const auto training = worker.at("training_seconds").get<double>();
    if (images <= 0 || training <= 0) {
      throw Error(ExitCode::kFailure, "worker " + worker.at("rank").dump() +
                                          " has trained nothing, as the scheduler's summary says");
    }
    seconds.push_back(training / images);
  }
  return SecondsOfAll(pace, seconds) / SecondsOfAll(JointPace::kTogether, seconds);
}

struct MachineBytes {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t all() const { return sent + received; }
};

// What crosses each machine's link.
std::vector<MachineBytes> BytesByMachine(const Json& summary, const Job& job) {
  const bool colocated = job.cluster().network().colocated();
  std::vector<MachineBytes> machines(MachinesOf(job));
  for (const Json& worker : summary.at("workers")) {
    MachineBytes& machine = machines.at(worker.at("rank"));
    machine.sent += worker.at("bytes_sent").get<int64_t>();
    machine.received += worker.at("bytes_received").get<int64_t>();
    if (!colocated) continue;
    // Neither leaves the machine: not the one's way, nor, as the server's, the other's.
    const auto within = worker.at("bytes_to_own_server").get<int64_t>() +
                        worker.at("bytes_from_own_server").get<int64_t>();
    machine.sent -= within;
    machine.received -= within;
  }
  for (const Json& server : summary.at("servers")) {
    const int rank = server.at("rank");
    MachineBytes& machine = machines.at(colocated ? rank : job.cluster().workers() + rank);
    machine.sent += server.at("bytes_sent").get<int64_t>();
    machine.received += server.at("bytes_received").get<int64_t>();
  }
  return machines;
}

void AddBytes(const Json& summary, const Job& job, double iterations, PointResult& result) {
  const std::vector<MachineBytes> machines = BytesByMachine(summary, job);
  const MachineBytes& busiest =
      *std::max_element(machines.begin(), machines.end(),
                        [](const auto& a, const auto& b) { return a.all() < b.all(); });
  result.bytes_sent = static_cast<double>(busiest.sent) / iterations;
  result.bytes_received = static_cast<double>(busiest.received) / iterations;
  int64_t all = 0;
  for (const MachineBytes& machine : machines) all += machine.all();
  result.mean_bytes = static_cast<double>(all) / static_cast<double>(machines.size()) / iterations;
}

// A plan with as many floats under each scheme.
Plan SchemesOf(const Json& summary) {
  Plan plan;
  for (const Json& layer : summary.at("layers")) {
    BucketPlan& bucket = *plan.add_buckets();
    bucket.add_chunks()->set_size(layer.at("parameters"));
    const std::string name = layer.at("scheme");
    for (int scheme = Scheme_MIN; scheme <= Scheme_MAX; ++scheme) {
      if (SchemeName(static_cast<Scheme>(scheme)) == name) {
        bucket.set_scheme(static_cast<Scheme>(scheme));
      }
    }
  }
  return plan;
}

PointResult Read(const Json& summary, const ExperimentPoint& point, int warm_up) {
  const std::vector<double> durations = summary.at("duration_ms");
  const std::vector<double> exposed = summary.at("exposed_ms");
  if (exposed.size() != durations.size() || static_cast<int>(durations.size()) <= warm_up) {
    throw Error(ExitCode::kFailure, "the training had " + std::to_string(durations.size()) +
                                        " iterations; the first " + std::to_string(warm_up) +
                                        " do not count");
  }
  PointResult result;
  const SteadyTimes times = MiddleHalf(durations, exposed, warm_up);
  result.iteration = times.iteration * ShareOfMean(summary, point.job.communication().staleness());
  result.busy = std::max(0.0, 1 - times.exposed / times.iteration);
  AddBytes(summary, point.job, summary.at("iterations").get<double>(), result);
  result.predicted = summary.value("predicted_iteration_ms", 0.0) / kMillisecondsPerSecond;
  result.schemes = SchemeSummary(SchemesOf(summary));
  if (point.job.training().engine() == Training::REPLAY) {
    result.compute = SecondsAlone(point.job, point.model);
  } else {
    // The machines are as fast as they are, whatever device the model's times are of.
    result.compute = result.busy * result.iteration;
    result.losses = summary.at("loss").get<std::vector<double>>();
    if (summary.contains("test_accuracy")) result.accuracy = summary.at("test_accuracy");
  }
  return result;
}

}  // namespace

PointResult ReadSummary(const std::string& text, const ExperimentPoint& point, int warm_up) {
  try {
    return Read(Json::parse(text), point, warm_up);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::kFailure,
                std::string("the scheduler's summary is not what it should be: ") + error.what());
  } catch (const std::out_of_range&) {
    throw Error(ExitCode::kFailure, "the scheduler's summary is of another cluster");
  }
}

}  // namespace poseidon
