// poseidon_caffe: `caffe train|test|time`, where training can be part of a job.
#include <caffe/util/signal_handler.h>
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <caffe/caffe.hpp>
#include <iostream>
#include <map>

#include "caffe_adapter/patch/caffe_patch.h"
#include "caffe_adapter/patch/caffe_time.h"
#include "core/error.h"
#include "core/own_flags.h"
#include "core/program.h"
#include "core/text/split.h"

DEFINE_string(solver, "", "train: the solver file.");
DEFINE_string(model, "", "test, time: the net file.");
DEFINE_string(weights, "",
              "train: .caffemodel files to start from, separated by commas. test: the model.");
DEFINE_string(snapshot, "", "train: the .solverstate to go on from; every worker reads it.");
DEFINE_string(gpu, "", "The GPU to use; empty: the solver's solver_mode and device_id.");
DEFINE_int32(iterations, 50, "test, time: how many.");
DEFINE_int32(level, 0, "The net's level.");
DEFINE_string(stage, "", "The net's stages, separated by commas.");
DEFINE_string(phase, "", "time: TRAIN (the default) or TEST.");
DEFINE_string(job, "", "train: the job config (docs/configuration.md). Empty: trains alone.");
DEFINE_int32(rank, -1, "train in a job: this worker's rank; -1 takes whichever is free.");
DEFINE_string(host, "", "train in a job: address at which other nodes reach this machine.");
DEFINE_string(out, "",
              "train in a job: directory for worker-RANK.trace.json, if its config wants one.");

namespace poseidon {
namespace {

using ::caffe::Caffe;

void SetDevice(const ::caffe::SolverParameter* solver) {
  std::string gpu = FLAGS_gpu;
  if (gpu.empty() && solver != nullptr && solver->solver_mode() == ::caffe::SolverParameter::GPU &&
      solver->has_solver_mode()) {
    gpu = std::to_string(solver->device_id());
  }
  if (gpu.empty()) {
    Caffe::set_mode(Caffe::CPU);
    return;
  }
  if (gpu.find_first_not_of("0123456789") != std::string::npos) {
    throw ConfigError("--gpu is \"" + gpu +
                      "\"; a worker uses one GPU: give each machine as many "
                      "workers as it has GPUs, each with its --gpu");
  }
#ifdef CPU_ONLY
  throw ConfigError("--gpu: this Caffe is built for the CPU only");
#else
  Caffe::SetDevice(std::stoi(gpu));
  Caffe::set_mode(Caffe::GPU);
#endif
}

void Require(const std::string& flag, const char* name, const char* verb) {
  if (flag.empty()) throw ConfigError(std::string(verb) + " needs --" + name);
}

::caffe::SolverParameter ReadSolver() {
  ::caffe::SolverParameter parameter;
  ::caffe::ReadSolverParamsFromTextFileOrDie(FLAGS_solver, &parameter);
  parameter.mutable_train_state()->set_level(FLAGS_level);
  for (const std::string& stage : SplitAtCommas(FLAGS_stage)) {
    parameter.mutable_train_state()->add_stage(stage);
  }
  if (!FLAGS_weights.empty() || !FLAGS_snapshot.empty()) parameter.clear_weights();
  if (!FLAGS_weights.empty()) parameter.add_weights(FLAGS_weights);
  return parameter;
}

ExitCode Train() {
  Require(FLAGS_solver, "solver", "train");
  if (!FLAGS_weights.empty() && !FLAGS_snapshot.empty()) {
    throw ConfigError("give --snapshot to go on or --weights to start from, not both");
  }
  const ::caffe::SolverParameter parameter = ReadSolver();
  SetDevice(&parameter);
  std::unique_ptr<CaffePatch> worker;
  if (!FLAGS_job.empty()) {
    // Without destructors: one of a solver on a GPU that does not answer would wait for ever.
    const auto end = [](const Error& error) { EndAtOnce("poseidon_caffe", error); };
    worker = std::make_unique<CaffePatch>(CaffePatchOptions{.config = ReadJobConfig(FLAGS_job),
                                                            .wanted_rank = FLAGS_rank,
                                                            .host = FLAGS_host,
                                                            .trace_directory = FLAGS_out,
                                                            .on_error = end});
  }
  // Only worker 0 can write a snapshot.
  const bool leads = worker == nullptr || worker->rank() == 0;
  ::caffe::SignalHandler signals(::caffe::SolverAction::STOP, leads
                                                                  ? ::caffe::SolverAction::SNAPSHOT
                                                                  : ::caffe::SolverAction::NONE);
  const std::unique_ptr<::caffe::Solver<float>> solver(
      ::caffe::SolverRegistry<float>::CreateSolver(parameter));
  solver->SetActionFunction(signals.GetActionFunction());
  const char* const snapshot = FLAGS_snapshot.empty() ? nullptr : FLAGS_snapshot.c_str();
  if (worker == nullptr) {
    solver->Solve(snapshot);
    return ExitCode::kSuccess;
  }
  worker->Attach(*solver);
  worker->Solve(snapshot);
  worker->Finish();
  return ExitCode::kSuccess;
}

std::unique_ptr<::caffe::Net<float>> ReadNet(::caffe::Phase phase) {
  const std::vector<std::string> stages = SplitAtCommas(FLAGS_stage);
  return std::make_unique<::caffe::Net<float>>(FLAGS_model, phase, FLAGS_level, &stages);
}

ExitCode Test() {
  Require(FLAGS_model, "model", "test");
  Require(FLAGS_weights, "weights", "test");
  SetDevice(nullptr);
  const auto net = ReadNet(::caffe::TEST);
  for (const std::string& weights : SplitAtCommas(FLAGS_weights)) {
    net->CopyTrainedLayersFrom(weights);
  }
  std::vector<std::vector<double>> sums(net->output_blobs().size());
  for (int iteration = 0; iteration < FLAGS_iterations; ++iteration) {
    const auto& outputs = net->Forward();
    for (size_t i = 0; i < outputs.size(); ++i) {
      sums[i].resize(static_cast<size_t>(outputs[i]->count()));
      for (size_t j = 0; j < sums[i].size(); ++j) sums[i][j] += outputs[i]->cpu_data()[j];
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::string& name = net->blob_names()[net->output_blob_indices()[i]];
    for (const double sum : sums[i]) std::cout << name << " = " << sum / FLAGS_iterations << '\n';
  }
  return ExitCode::kSuccess;
}

ExitCode Time() {
  Require(FLAGS_model, "model", "time");
  SetDevice(nullptr);
  TimeNet(*ReadNet(FLAGS_phase == "TEST" ? ::caffe::TEST : ::caffe::TRAIN), FLAGS_iterations);
  return ExitCode::kSuccess;
}

ExitCode RunVerb(const std::string& verb) {
  if (verb == "train") return Train();
  if (verb == "test") return Test();
  if (verb == "time") return Time();
  throw ConfigError("unknown verb \"" + verb + "\"; expected train, test or time");
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::ReadOwnFlags(
      "BVLC Caffe as a worker of a job.\n\n"
      "  poseidon_caffe train --solver=F [--weights=F | --snapshot=F] [--gpu=N] [--job=F]\n"
      "  poseidon_caffe test --model=F --weights=F [--iterations=N]\n"
      "  poseidon_caffe time --model=F [--iterations=N]",
      __FILE__, &argc, &argv);
  const std::string verb = argc == 2 ? argv[1] : "";
  return poseidon::RunProgram("poseidon_caffe", argv[0],
                              [&verb] { return poseidon::RunVerb(verb); });
}
