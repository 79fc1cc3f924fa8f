// The same trainings simulated and emulated: how far apart the seconds of an iteration are, and
// whether the bytes are the same. A line a point. Needs root, `ip` and `tc` (docs/experiments.md);
// other work on the machine shows in the emulated seconds.
//
//   bench_emulation [--profile=FILE] [--workers=2,4,8] [--bandwidths=1Gbps,2Gbps]
//                   [--policies=WFBP,BYTES,ALL_RING] [--repeat=3] [--message_cost=..]
//                   [--latency=..]
//                   [--goodput_share=..]
//
// Of the repetitions the median counts.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/program.h"
#include "core/text/split.h"
#include "experiments/process_point.h"
#include "experiments/simulated_point.h"
#include "planner/policies.h"
#include "proto/replay_model.h"
#include "proto/text_format.h"
#include "tests/bench/usage.h"

DEFINE_string(profile, "", "A job config with a replay; empty: a net of LeNet's shape.");
DEFINE_string(workers, "2,4,8", "Numbers of workers, each with a server on its machine.");
DEFINE_string(bandwidths, "1Gbps,2Gbps", "Of every link.");
DEFINE_string(policies, "WFBP,BYTES,ALL_RING", "Policies of `poseidon simulate`.");
DEFINE_int32(repeat, 3, "How often each point is emulated.");
DEFINE_int32(iterations, 20, "That count, of each emulation.");
DEFINE_int32(slow_motion, 1, "How many times as long everything takes in the emulation.");
DEFINE_string(message_cost, "20us", "What the simulation takes for it.");
DEFINE_string(latency, "50us", "What the simulation takes for it.");
DEFINE_double(goodput_share, 0.94,
              "Of the links, for both; the emulation has no more than TCP leaves, 0.955.");
DEFINE_int64(kv_pair_bytes, 2097152, "Bytes of a KV pair.");
DEFINE_string(out, "/tmp/bench_emulation", "Directory for job files and logs.");

namespace poseidon {
namespace {

// LeNet's layers at a batch of 64, computed in as long as their gradients take at 1 Gb/s.
Replay LenetShape() {
  Job job;
  ParseText(R"(training { replay {
    batch: 64
    layers { name: "conv1" parameters: 520 forward_ms: 3 backward_ms: 4 }
    layers { name: "conv2" parameters: 25050 forward_ms: 3 backward_ms: 6 }
    layers { name: "ip1" type: "InnerProduct" inputs: 800 outputs: 500
             forward_ms: 1 backward_ms: 2 }
    layers { name: "ip2" type: "InnerProduct" inputs: 500 outputs: 10
             forward_ms: 0.4 backward_ms: 0.6 }
  } })",
            "LeNet's shape", job);
  return job.training().replay();
}

std::string ProgramsBesideThis() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

Communication Policy(const std::string& name) {
  const auto found = FindPolicy(SimulatedPolicies(), name);
  if (!found) throw ConfigError("there is no policy " + name);
  return found->second;
}

ExperimentPoint MakePoint(const Replay& replay, const std::string& system, int workers,
                          const std::string& bandwidth) {
  ExperimentPoint point;
  point.job.set_name("emulation");
  point.model = DescribeReplay(replay).model;
  Cluster& cluster = *point.job.mutable_cluster();
  cluster.set_workers(workers);
  cluster.set_servers(workers);
  cluster.mutable_disturbance();  // none: what varies would be taken for a wrong prediction
  Network& network = *cluster.mutable_network();
  network.set_bandwidth(bandwidth);
  network.set_message_cost(FLAGS_message_cost);
  network.set_latency(FLAGS_latency);
  network.set_goodput_share(FLAGS_goodput_share);
  *point.job.mutable_communication() = Policy(system);
  if (system != "CAFFE_PS")
    point.job.mutable_communication()->set_kv_pair_bytes(FLAGS_kv_pair_bytes);
  point.job.mutable_training()->set_engine(Training::REPLAY);
  return point;
}

struct Emulated {
  double median = 0;  // seconds
  double least = 0;
  double most = 0;
  PointResult last;
};

Emulated Emulate(const ExperimentPoint& point, Interruption& interruption) {
  std::vector<double> seconds;
  Emulated emulated;
  for (int i = 0; i < FLAGS_repeat; ++i) {
    ProcessOptions options;
    options.programs = ProgramsBesideThis();
    options.directory = FLAGS_out;
    options.iterations = FLAGS_iterations;
    options.slow_motion = FLAGS_slow_motion;
    options.interruption = &interruption;
    emulated.last = EmulatePoint(point, options);
    seconds.push_back(emulated.last.iteration);
  }
  std::sort(seconds.begin(), seconds.end());
  emulated.median = seconds[seconds.size() / 2];
  emulated.least = seconds.front();
  emulated.most = seconds.back();
  return emulated;
}

bool SameBytes(const PointResult& a, const PointResult& b) {
  return a.bytes_sent == b.bytes_sent && a.bytes_received == b.bytes_received &&
         a.mean_bytes == b.mean_bytes;
}

void Compare(const ExperimentPoint& point, const std::string& system, Interruption& interruption) {
  constexpr double kMilliseconds = 1000;
  const PointResult simulated = SimulatePoint(point);
  const Emulated emulated = Emulate(point, interruption);
  std::printf("%-8s %3d  %-8s  %8.2f  %8.2f (%.2f to %.2f)  %+5.1f%%  %s\n", system.c_str(),
              point.job.cluster().workers(), point.job.cluster().network().bandwidth().c_str(),
              kMilliseconds * simulated.iteration, kMilliseconds * emulated.median,
              kMilliseconds * emulated.least, kMilliseconds * emulated.most,
              100 * (simulated.iteration / emulated.median - 1),
              SameBytes(simulated, emulated.last) ? "same bytes" : "OTHER BYTES");
  std::fflush(stdout);
}

ExitCode Run() {
  FLAGS_minloglevel = google::GLOG_WARNING;
  Replay replay = LenetShape();
  if (!FLAGS_profile.empty()) {
    Job job;
    ReadTextFile(FLAGS_profile, job);
    replay = job.training().replay();
  }
  Interruption interruption;
  std::printf("system   P   links     simulated  emulated (of %d)  simulated is\n", FLAGS_repeat);
  for (const std::string& bandwidth : SplitAtCommas(FLAGS_bandwidths)) {
    for (const std::string& system : SplitAtCommas(FLAGS_policies)) {
      for (const std::string& workers : SplitAtCommas(FLAGS_workers)) {
        Compare(MakePoint(replay, system, std::stoi(workers), bandwidth), system, interruption);
      }
    }
  }
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ParseFlags(&argc, &argv,
                              "The same trainings simulated and emulated. Needs root, ip and tc.");
  return poseidon::RunProgram("bench_emulation", argv[0], poseidon::Run);
}
