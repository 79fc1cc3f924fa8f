// poseidon_net: times or scores a net on this machine, without a cluster; `poseidon time` and
// `poseidon test` start it. A program of its own, so that the others need not load libtorch.
#include <gflags/gflags.h>
#include <google/protobuf/text_format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "caffe_adapter/net/solver.h"
#include "client/pace/compute_disturbance.h"
#include "core/atomic_file.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/own_flags.h"
#include "core/process/allowance.h"
#include "core/process/counting_line.h"
#include "core/program.h"
#include "core/text/split.h"
#include "proto/text_format.h"
#include "worker/engine/layer_measurement.h"
#include "worker/torch/score.h"
#include "worker/torch/torch_engine.h"

DEFINE_string(solver, "", "Caffe solver prototxt; its net is taken.");
DEFINE_string(net, "", "Caffe net prototxt.");
DEFINE_string(weights, "", "test: .caffemodel files, comma separated.");
DEFINE_int32(iterations, 50, "Batches to measure or to score; test: the solver's test_iter.");
DEFINE_int64(batch, 0, "time: samples of a batch, instead of the net's.");
DEFINE_int32(threads, 1, "Threads of the arithmetic.");
DEFINE_string(out, "", "time: the profile to write.");

namespace poseidon {
namespace {

// Iterations until memory and caches are as they stay.
constexpr int kWarmup = 3;
// All times are kept until their median is taken: 32 bytes an iteration and layer.
constexpr int kMostMeasured = 1'000'000;
// As many as a job may have (training.threads).
constexpr int kMostThreads = 4096;

SolverNet ReadNet(const std::string& path, caffe::Phase phase) {
  SolverNet net;
  const TextLocations locations = ReadTextFile(path, net.net);
  net.phase = phase;
  net.locate = [locations](const std::string& place) {
    return locations.Find(caffe::NetParameter::default_instance(), place);
  };
  return net;
}

// A solver for a net alone: what it would do with gradients does not matter here.
Solver TrainSolver() {
  if (!FLAGS_solver.empty()) {
    Solver solver = LoadSolver(FLAGS_solver);
    solver.tests.clear();
    return solver;
  }
  Solver solver;
  solver.parameter.set_type("SGD");
  solver.parameter.set_base_lr(0);
  solver.parameter.set_lr_policy("fixed");
  solver.train = ReadNet(FLAGS_net, caffe::TRAIN);
  return solver;
}

struct ScoredNet {
  std::string name;
  SolverNet net;
  int batches;
};

// A solver says how many batches its tests take, unless the flag does.
std::vector<ScoredNet> TestNets() {
  if (FLAGS_solver.empty()) {
    return {{FLAGS_net, ReadNet(FLAGS_net, caffe::TEST), FLAGS_iterations}};
  }
  const Solver solver = LoadSolver(FLAGS_solver);
  if (solver.tests.empty()) {
    throw ConfigError(FLAGS_solver + ": has no test net (test_iter, test_interval)");
  }
  const bool given = !gflags::GetCommandLineFlagInfoOrDie("iterations").is_default;
  std::vector<ScoredNet> nets;
  for (size_t i = 0; i < solver.tests.size(); ++i) {
    const int batches = solver.parameter.test_iter(static_cast<int>(i));
    nets.push_back({TestNetName(solver, i), solver.tests[i], given ? FLAGS_iterations : batches});
  }
  return nets;
}

void Print(const Engine& engine, const LayerMeasurement& measured) {
  std::printf("%-32s %-18s %12s %12s\n", "layer", "type", "forward ms", "backward ms");
  for (const StepTimes& step : measured.steps) {
    std::printf("%-32s %-18s %12.3f %12.3f\n", step.name.c_str(), step.type.c_str(),
                step.forward_ms, step.backward_ms);
  }
  const double pass = measured.forward_ms + measured.backward_ms;
  std::printf("%-32s %-18s %12.3f %12.3f\n", "all", "", measured.forward_ms, measured.backward_ms);
  std::printf("measured on the CPU with %d %s\n", FLAGS_threads,
              FLAGS_threads == 1 ? "thread" : "threads");
  std::printf("batch %lld: %.1f ms forward and backward, %.1f images/s; waiting for data %.1f ms\n",
              static_cast<long long>(engine.batch()), pass,
              1000 * static_cast<double>(engine.batch()) / pass, measured.data_ms);
  if (measured.disturbance) {
    std::printf("disturbance of this machine: %s\n",
                DisturbanceText(*measured.disturbance).c_str());
  }
}

ExitCode TimeNet() {
  if (FLAGS_iterations > kMostMeasured) {
    throw ConfigError("--iterations is " + std::to_string(FLAGS_iterations) +
                      "; it must be at most " + std::to_string(kMostMeasured));
  }
  TorchEngineOptions options;
  options.solver = TrainSolver();
  if (!google::GetCommandLineFlagInfoOrDie("batch").is_default) {
    if (FLAGS_batch < 1) {
      throw ConfigError("--batch is " + std::to_string(FLAGS_batch) + "; it must be 1 or more");
    }
    options.batch_per_worker = FLAGS_batch;
  }
  options.threads = FLAGS_threads;
  const std::unique_ptr<Engine> engine = MakeTorchEngine(options);
  // What was measured for hours is not to be lost for the file's sake.
  if (!FLAGS_out.empty()) {
    const std::filesystem::path directory = std::filesystem::path(FLAGS_out).parent_path();
    std::error_code none;
    if (!directory.empty() && !std::filesystem::is_directory(directory, none)) {
      MakeDirectories(directory);
      std::cerr << "made the directory " << directory.string() << std::endl;
    }
    CheckCanWrite(FLAGS_out);
  }
  const int all = kWarmup + FLAGS_iterations;
  CountingLine line("iteration");
  const LayerMeasurement measured = MeasureLayers(*engine, kWarmup, FLAGS_iterations,
                                                  [all, &line](int done) { line.Show(done, all); });
  Print(*engine, measured);
  if (FLAGS_out.empty()) return ExitCode::kSuccess;
  const std::string& name = engine->net()->name;
  const int passes = options.solver.parameter.iter_size();
  const Job profile = ToProfile(name.empty() ? "profile" : name, *engine, measured, passes);
  std::string text;
  google::protobuf::TextFormat::PrintToString(profile, &text);
  std::string head = "# Measured by `poseidon time` on the CPU, " + std::to_string(FLAGS_threads) +
                     " thread(s).\n";
  if (passes > 1) {
    head += "# Batch and times are those of an iteration, which has " + std::to_string(passes) +
            " passes (iter_size).\n";
  }
  WriteFileAtomically(FLAGS_out, head + text);
  std::cout << "profile: " << FLAGS_out << std::endl;
  return ExitCode::kSuccess;
}

void PrintScore(const ScoredNet& scored) {
  CountingLine line("batch");
  const TestResult result = ScoreNet(
      scored.net, SplitAtCommas(FLAGS_weights), scored.batches, FLAGS_threads,
      [](const std::string& news) { std::cerr << news << std::endl; },
      [&line](int64_t done, int64_t all) { line.Show(done, all); });
  if (result.loss) std::printf("total loss: %.6g\n", *result.loss);
  for (const TestOutput& output : result.outputs) {
    for (const float value : output.values) {
      std::printf("%s: %.6g\n", output.blob.c_str(), value);
    }
  }
}

ExitCode Test() {
  if (FLAGS_weights.empty()) throw ConfigError("--weights is missing; name a .caffemodel");
  const std::vector<ScoredNet> nets = TestNets();
  for (const ScoredNet& scored : nets) {
    if (nets.size() > 1) {
      std::printf("%s:\n", scored.name.c_str());
      std::fflush(stdout);  // before what is told of its files
    }
    PrintScore(scored);
  }
  return ExitCode::kSuccess;
}

// Where threads outnumber cores a batch can take minutes, in which nothing else would be said.
void CheckThreads() {
  if (FLAGS_threads < 1) throw ConfigError("--threads must be at least 1");
  const std::string given = "--threads is " + std::to_string(FLAGS_threads);
  if (FLAGS_threads > kMostThreads) {
    throw ConfigError(given + "; it must be at most " + std::to_string(kMostThreads));
  }
  const int cores = UsableCores();
  if (FLAGS_threads <= cores) return;
  std::cerr << "warning: " << given << ", where this process may use " << cores
            << (cores == 1 ? " core" : " cores") << "; more threads than cores make it slower"
            << std::endl;
}

void CheckFlags() {
  if (FLAGS_net.empty() == FLAGS_solver.empty()) {
    throw ConfigError("give either --solver, a Caffe solver prototxt, or --net, a net");
  }
  if (FLAGS_iterations < 1) throw ConfigError("--iterations must be at least 1");
  CheckThreads();
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::ReadOwnFlags(
      "Times or scores a net on this machine; see `poseidon time --help` and `poseidon test "
      "--help`.\n\n  poseidon_net time|test --solver=FILE|--net=FILE",
      __FILE__, &argc, &argv);
  const std::string verb = argc == 2 ? argv[1] : "";
  return poseidon::RunProgram("poseidon " + verb, argv[0], [&verb] {
    poseidon::CheckFlags();
    if (verb == "time") return poseidon::TimeNet();
    if (verb == "test") return poseidon::Test();
    throw poseidon::ConfigError("say what to do: time or test");
  });
}
