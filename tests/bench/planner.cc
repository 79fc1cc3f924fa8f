// What policy TIME gains: predicted and simulated iterations of VGG19, GoogLeNet and ResNet-50 on a
// grid of clusters, servers and workers in pairs on machines, against the best single scheme, the
// paper's policy and first come, first served.
//
//   bench_planner [--workers=2,8] [--bandwidths=1Gbps,10Gbps] [--latencies=100us]
//
// A line a point: milliseconds of an iteration, TIME's as predicted and as simulated, the others as
// simulated; "gain" is how much shorter TIME's simulated iteration is than the best of the others.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "proto/bucket.h"
#include "tests/simulation/planned_training.h"

DEFINE_string(workers, "2,8", "Numbers of workers, each with as many servers.");
DEFINE_string(bandwidths, "1Gbps,10Gbps", "Goodputs of a machine's link.");
DEFINE_string(latencies, "100us", "One way.");

namespace poseidon {
namespace {

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

double Milliseconds(Job job, Communication::Policy policy, const ModelSpec& model) {
  job.mutable_communication()->set_policy(policy);
  return 1000 * TrainAsPlanned(job, model).simulated;
}

void PrintPoint(const PlannedNet& net, const std::string& workers, const std::string& bandwidth,
                const std::string& latency) {
  Job job =
      PlannedJob(std::stoi(workers), std::stoi(workers), bandwidth.c_str(), latency.c_str(), true);
  double compute = 0;
  for (const LayerSpec& layer : net.model.layers()) {
    compute += layer.forward_ms() + layer.backward_ms();
  }
  job.mutable_communication()->set_policy(Communication::TIME);
  const PlannedOutcome time = TrainAsPlanned(job, net.model);
  job.mutable_communication()->set_by_priority(false);
  const double fifo = 1000 * TrainAsPlanned(job, net.model).simulated;
  job.mutable_communication()->set_by_priority(true);
  double single = 0;
  std::string best;
  for (const Communication::Policy policy : kComparedPolicies) {
    if (policy == Communication::BYTES) continue;
    const double candidate = Milliseconds(job, policy, net.model);
    if (!best.empty() && candidate >= single) continue;
    single = candidate;
    best = Communication::Policy_Name(policy);
  }
  const double bytes = Milliseconds(job, Communication::BYTES, net.model);
  const double others = std::min({single, bytes, fifo});
  std::printf("%-9s %4s %8s %6s %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %6.1f%%  %s\n", net.name,
              workers.c_str(), bandwidth.c_str(), latency.c_str(), compute, 1000 * time.predicted,
              1000 * time.simulated, single, bytes, fifo,
              100 * (1 - 1000 * time.simulated / others), best.c_str());
  std::fflush(stdout);
}

void PrintGrid() {
  std::printf("%-9s %4s %8s %6s %9s %9s %9s %9s %9s %9s %7s  %s\n", "net", "P", "link", "lat.",
              "compute", "predicted", "TIME", "single", "BYTES", "FIFO", "gain", "best single");
  for (const PlannedNet& net : PlannedNets()) {
    for (const std::string& workers : Split(FLAGS_workers)) {
      for (const std::string& bandwidth : Split(FLAGS_bandwidths)) {
        for (const std::string& latency : Split(FLAGS_latencies)) {
          PrintPoint(net, workers, bandwidth, latency);
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
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  poseidon::PrintGrid();
}
