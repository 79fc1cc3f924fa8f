#include "cli/doctor/job_needs.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "caffe_adapter/data/sample_shapes.h"
#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/net/solver.h"
#include "cli/input/model_source.h"
#include "core/text/split.h"
#include "proto/lanes.h"
#include "proto/model_size.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// Whether a layer is one of the phase.
bool IsIn(const caffe::LayerParameter& layer, caffe::Phase phase) {
  return layer.include_size() == 0 ||
         std::any_of(layer.include().begin(), layer.include().end(),
                     [&](const auto& rule) { return !rule.has_phase() || rule.phase() == phase; });
}

void AddSources(const SolverNet& net, std::vector<std::string>& sources) {
  for (const caffe::LayerParameter& layer : net.net.layer()) {
    if (!IsIn(layer, net.phase)) continue;
    if (std::string path = DataPath(layer); !path.empty()) sources.push_back(std::move(path));
  }
}

std::vector<std::string> FilesOf(const std::string& path, const caffe::SolverParameter& solver) {
  std::vector<std::string> nets = {solver.net(), solver.train_net()};
  nets.insert(nets.end(), solver.test_net().begin(), solver.test_net().end());
  std::vector<std::string> files = {path};
  for (const std::string& net : nets) {
    if (!net.empty()) files.push_back(ResolvePath(path, net));
  }
  return files;
}

// As worker 0 finds it, whose host may have what this machine has not.
std::string PathThere(const JobConfig& config, const std::string& path) {
  try {
    return ResolvePath(config, path);
  } catch (const ConfigError&) {
    return path;
  }
}

// A training that goes on from a snapshot needs no weights, and those that it began with may be
// gone. Where it finds the latest one is for it to see.
std::vector<std::string> StartFiles(const JobConfig& config, const caffe::SolverParameter& solver) {
  const Training& training = config.job.training();
  if (training.has_snapshot() && training.snapshot() != "latest") {
    return {PathThere(config, training.snapshot())};
  }
  if (training.has_snapshot() && FindLatestSnapshot(solver.snapshot_prefix())) return {};
  std::vector<std::string> files;
  for (const std::string& entry :
       training.weights_size() > 0 ? training.weights() : solver.weights()) {
    for (const std::string& path : SplitAtCommas(entry)) files.push_back(PathThere(config, path));
  }
  return files;
}

// Of floats that the optimizer keeps for each of the model's.
int StatesOf(const UpdateRuleSpec& rule) {
  return rule.type() == "Adam" || rule.type() == "AdaDelta" ? 2 : 1;
}

void SetMemory(const Job& job, const ModelSpec& model, JobNeeds& needs) {
  int64_t floats = 0;
  for (const LayerSpec& layer : model.layers()) floats += FloatCount(layer);
  const auto bytes = floats * static_cast<int64_t>(sizeof(float));
  const int states = StatesOf(model.update_rule());
  // Values, gradients, optimizer state; with recovery what they were before the last update, too.
  const int kept = job.recovery().mode() == Recovery::NONE ? 0 : 1 + states;
  needs.bytes_per_worker = bytes * (2 + states + kept);
  // Sums, values, optimizer state.
  needs.bytes_per_server = bytes * (2 + states) / std::max(1, job.cluster().servers());
  needs.snapshot_bytes = bytes * (1 + states);
}

}  // namespace

JobRequirements RequirementsOf(const JobConfig& config) {
  const Job& job = config.job;
  JobRequirements requirements;
  JobNeeds& needs = requirements.needs;
  needs.nodes = MostNodes(job);
  needs.lanes = OfferedLanes(job, job.cluster().cores());
  needs.gpus = job.training().device() == Training::CUDA;
  needs.gpus_per_worker = job.cluster().devices_per_worker();
  ModelSource source;
  if (job.training().engine() == Training::REPLAY) {
    source.replay = job.training().replay();
  } else if (!job.training().has_solver()) {
    return requirements;  // a program of the user's has files of its own
  } else {
    source.solver = SolverPath(config);
    if (job.training().has_batch_per_worker()) source.batch = job.training().batch_per_worker();
    const Solver solver = LoadSolver(source.solver);
    CheckLatestSnapshot(job.training(), solver);
    requirements.files = FilesOf(source.solver, solver.parameter);
    AddSources(solver.train, requirements.data);
    if (solver.parameter.test_interval() > 0) {
      for (const SolverNet& test : solver.tests) AddSources(test, requirements.test_data);
    }
    requirements.start = StartFiles(config, solver.parameter);
    const std::string& prefix = solver.parameter.snapshot_prefix();
    if (!prefix.empty()) {
      needs.snapshot_directory = std::filesystem::path(prefix).parent_path().string();
      if (needs.snapshot_directory.empty()) needs.snapshot_directory = ".";
    }
  }
  requirements.model = LoadModel(source).model;
  if (job.training().large_batch().has_lars()) {
    requirements.model->mutable_update_rule()->set_deferred(true);
  }
  SetMemory(job, *requirements.model, needs);
  return requirements;
}

}  // namespace poseidon
