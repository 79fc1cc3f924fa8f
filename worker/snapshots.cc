#include "worker/snapshots.h"

#include <glog/logging.h>

#include <filesystem>
#include <utility>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/solver_state.h"
#include "core/arithmetic/update_rule.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

std::string NameOf(const SnapshotOptions& options, int64_t iteration, const char* extension) {
  return options.prefix + "_iter_" + std::to_string(iteration) + extension +
         (options.hdf5 ? ".h5" : "");
}

// multistep: the steps that have been taken before `iteration`. Caffe goes on with them.
int CurrentStep(const UpdateRule& rule, int64_t iteration) {
  if (rule.lr_policy != "multistep") return 0;
  return StepsTaken(rule.stepvalue, iteration - 1);
}

}  // namespace

bool Snapshots::IsDue(int64_t iteration) const {
  return !options_.prefix.empty() && options_.interval > 0 && iteration % options_.interval == 0;
}

bool Snapshots::IsDueAtEnd(int64_t iteration) const {
  if (options_.prefix.empty()) return false;
  return IsDue(iteration) || options_.after_train;
}

std::string Snapshots::Write(const Engine& engine, const ModelSpec& model, int64_t iteration,
                             std::span<const float> state) const {
  const std::string net = NameOf(options_, iteration, ".caffemodel");
  const std::string path = NameOf(options_, iteration, ".solverstate");
  const fs::path directory = fs::path(options_.prefix).parent_path();
  std::error_code ignored;  // writing says what is wrong
  if (!directory.empty()) fs::create_directories(directory, ignored);
  // An older training's state must not stand beside the new model.
  fs::remove(path, ignored);
  WriteCaffemodel(net, *engine.net(), engine.Values());
  SolverState file;
  file.iteration = iteration;
  file.learned_net = net;
  file.current_step = CurrentStep(ToUpdateRule(model.update_rule()), iteration);
  file.history = ToHistory(*engine.net(), model, state);
  WriteSolverState(path, file);
  return path;
}

}  // namespace poseidon
