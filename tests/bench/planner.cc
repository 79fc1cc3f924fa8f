// What policy TIME gains: predicted and simulated iterations of VGG19, GoogLeNet and ResNet-50 on a
// grid of clusters, servers and workers in pairs on machines, against the best single scheme, the
// paper's policy and first come, first served.
//
//   bench_planner [--nets=VGG19,ResNet-50] [--workers=2,8] [--bandwidths=1Gbps,10Gbps]
//                 [--latencies=100us] [--results=FILE]
//
// A line a point: milliseconds of an iteration, TIME's as predicted and as simulated, the others as
// simulated; "gain" is how much shorter TIME's simulated iteration is than the best of the others;
// "off" is the prediction that is farthest from its simulation, of all policies. Points with 64
// workers take minutes: with --results lines are also put at the end of a file, and points that it
// has are not simulated again.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "proto/bucket.h"
#include "tests/bench/usage.h"
#include "tests/simulation/predictions/planned_training.h"

DEFINE_string(nets, "VGG19,GoogLeNet,ResNet-50", "Which of them.");
DEFINE_string(results, "", "A file to go on with; empty: none.");
DEFINE_string(workers, "2,8", "Numbers of workers, each with as many servers.");
DEFINE_string(bandwidths, "1Gbps,10Gbps", "Goodputs of a machine's link.");
DEFINE_string(latencies, "100us", "One way.");

namespace poseidon {
namespace {

// Of the columns that say where a point is.
constexpr size_t kPlaceWidth = 30;

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

struct Outcome {
  std::string name;
  double predicted = 0;  // milliseconds
  double simulated = 0;

  double off() const { return predicted / simulated - 1; }
};

class Point {
 public:
  Point(const PlannedNet& net, Job job) : net_(net), job_(std::move(job)) {}

  // Everything but where the point is.
  std::string Line() {
    const Outcome time = Train(Communication::TIME);
    job_.mutable_communication()->set_by_priority(false);
    const Outcome fifo = Train(Communication::TIME);
    job_.mutable_communication()->set_by_priority(true);
    const Outcome bytes = Train(Communication::BYTES);
    Outcome single;
    for (const Communication::Policy policy : kComparedPolicies) {
      if (policy == Communication::BYTES) continue;
      const Outcome outcome = Train(policy);
      if (single.name.empty() || outcome.simulated < single.simulated) single = outcome;
    }
    const double others = std::min({single.simulated, bytes.simulated, fifo.simulated});
    double compute = 0;
    for (const LayerSpec& layer : net_.model.layers()) {
      compute += layer.forward_ms() + layer.backward_ms();
    }
    char line[200];
    std::snprintf(line, sizeof(line),
                  "%9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %6.1f%% %6.1f%%  %s; off: %s", compute,
                  time.predicted, time.simulated, single.simulated, bytes.simulated, fifo.simulated,
                  100 * (1 - time.simulated / others), 100 * farthest_.off(), single.name.c_str(),
                  farthest_.name.c_str());
    return line;
  }

 private:
  Outcome Train(Communication::Policy policy) {
    job_.mutable_communication()->set_policy(policy);
    const PlannedOutcome planned = TrainAsPlanned(job_, net_.model);
    const Outcome outcome{
        Communication::Policy_Name(policy) + (job_.communication().by_priority() ? "" : ", FIFO"),
        1000 * planned.predicted, 1000 * planned.simulated};
    const bool farther =
        farthest_.name.empty() || std::abs(outcome.off()) > std::abs(farthest_.off());
    if (farther) farthest_ = outcome;
    return outcome;
  }

  const PlannedNet& net_;
  Job job_;
  Outcome farthest_;
};

// Points that the file of results has.
std::set<std::string> Done() {
  std::set<std::string> points;
  std::ifstream file(FLAGS_results);
  for (std::string line; std::getline(file, line);) points.insert(line.substr(0, kPlaceWidth));
  return points;
}

void PrintPoint(const PlannedNet& net, const std::string& workers, const std::string& bandwidth,
                const std::string& latency, const std::set<std::string>& done) {
  char place[kPlaceWidth + 1];
  std::snprintf(place, sizeof(place), "%-9s %4s %8s %6s", net.name, workers.c_str(),
                bandwidth.c_str(), latency.c_str());
  if (done.contains(place)) return;
  const int count = std::stoi(workers);
  Point point(net, PlannedJob(count, count, bandwidth.c_str(), latency.c_str(), true));
  const std::string line = place + (" " + point.Line());
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  if (!FLAGS_results.empty()) std::ofstream(FLAGS_results, std::ios::app) << line << '\n';
}

void PrintGrid() {
  std::printf("%-9s %4s %8s %6s %9s %9s %9s %9s %9s %9s %7s %7s  %s\n", "net", "P", "link", "lat.",
              "compute", "predicted", "TIME", "single", "BYTES", "FIFO", "gain", "off",
              "best single");
  const std::vector<std::string> nets = Split(FLAGS_nets);
  const std::set<std::string> done = Done();
  for (const PlannedNet& net : PlannedNets()) {
    if (std::find(nets.begin(), nets.end(), net.name) == nets.end()) continue;
    for (const std::string& workers : Split(FLAGS_workers)) {
      for (const std::string& bandwidth : Split(FLAGS_bandwidths)) {
        for (const std::string& latency : Split(FLAGS_latencies)) {
          PrintPoint(net, workers, bandwidth, latency, done);
        }
      }
    }
  }
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_minloglevel = google::GLOG_WARNING;
  poseidon::bench::ParseFlags(&argc, &argv,
                              "What policy TIME gains over single schemes, predicted and "
                              "simulated, on a grid of clusters.");
  poseidon::PrintGrid();
}
