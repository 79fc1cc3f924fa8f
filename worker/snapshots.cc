#include "worker/snapshots.h"

#include <glog/logging.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <utility>

#include "caffe_adapter/files/caffemodel.h"
#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

std::string NameOf(const SnapshotOptions& options, int64_t iteration, const char* extension) {
  return options.prefix + "_iter_" + std::to_string(iteration) + extension +
         (options.hdf5 ? ".h5" : "");
}

// The iteration of a file PREFIX_iter_N.solverstate or with .h5 behind.
std::optional<int64_t> IterationOf(std::string name, const std::string& prefix) {
  const std::string begin = prefix + "_iter_";
  if (!name.starts_with(begin)) return std::nullopt;
  if (name.ends_with(".h5")) name.resize(name.size() - 3);
  constexpr std::string_view kEnd = ".solverstate";
  if (!name.ends_with(kEnd)) return std::nullopt;
  const char* const first = name.data() + begin.size();
  const char* const last = name.data() + name.size() - kEnd.size();
  int64_t iteration = 0;
  const auto [end, error] = std::from_chars(first, last, iteration);
  if (error != std::errc() || end != last) return std::nullopt;
  return iteration;
}

// multistep: how many of the steps are past.
int CurrentStep(const UpdateRule& rule, int64_t iteration) {
  if (rule.lr_policy != "multistep") return 0;
  int step = 0;
  for (const int value : rule.stepvalue) step += value <= iteration ? 1 : 0;
  return step;
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

FoundSnapshot ReadSnapshot(const std::string& path) {
  FoundSnapshot found{path, ReadSolverState(path), ""};
  found.model = found.state.learned_net;
  std::error_code ignored;
  if (!found.model.empty() && fs::exists(found.model, ignored)) return found;
  const fs::path beside = fs::path(path).parent_path() / fs::path(found.model).filename();
  if (found.model.empty() || !fs::exists(beside, ignored)) {
    throw DataError(path + ": the model that it names, \"" + found.model +
                    "\", is neither there nor beside it");
  }
  found.model = beside.string();
  return found;
}

std::optional<std::string> FindLatestSnapshot(const std::string& prefix) {
  const fs::path directory =
      fs::path(prefix).has_parent_path() ? fs::path(prefix).parent_path() : fs::path(".");
  std::map<int64_t, fs::path, std::greater<>> newest_first;
  std::error_code ignored;  // no directory, no snapshot
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const auto iteration = IterationOf(name, fs::path(prefix).filename().string());
    if (iteration) newest_first[*iteration] = entry.path();
  }
  for (const auto& [iteration, path] : newest_first) {
    try {
      const FoundSnapshot found = ReadSnapshot(path.string());
      if (!IsHdf5Path(found.model)) {
        caffe::NetParameter model;
        ReadBinaryFile(found.model, model);
      }
      return path.string();
    } catch (const Error& error) {
      LOG(WARNING) << "passed over a snapshot: " << error.what();
    }
  }
  return std::nullopt;
}

}  // namespace poseidon
