#include "worker/snapshots.h"

#include <glog/logging.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/files/solver_state.h"
#include "core/arithmetic/update_rule.h"
#include "core/atomic_file.h"
#include "core/error.h"
#include "core/steady_now.h"
#include "core/time.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// For so long the usual file servers keep the locks of a machine that has died: NFS's for 90 s.
constexpr Duration kLongestLease = Seconds(120);
constexpr Duration kLookAgain = Seconds(1);

std::string NameOf(const SnapshotOptions& options, int64_t iteration, const char* extension) {
  return options.prefix + "_iter_" + std::to_string(iteration) + extension +
         (options.hdf5 ? ".h5" : "");
}

void MakeDirectoryOf(const std::string& prefix) {
  const fs::path directory = fs::path(prefix).parent_path();
  std::error_code ignored;  // writing says what is wrong
  if (!directory.empty()) fs::create_directories(directory, ignored);
}

// multistep: the steps that have been taken before `iteration`. Caffe goes on with them.
int CurrentStep(const UpdateRule& rule, int64_t iteration) {
  if (rule.lr_policy != "multistep") return 0;
  return StepsTaken(rule.stepvalue, iteration - 1);
}

}  // namespace

void Snapshots::CheckWritable(const NetDescription& net, const ModelSpec& model) {
  if (CanWrite() && (options_.interval > 0 || options_.after_train)) TryToWrite(net, model);
}

std::optional<std::string> Snapshots::WhyNotWritable(const NetDescription& net,
                                                     const ModelSpec& model) {
  try {
    if (!is_writable_) TryToWrite(net, model);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

void Snapshots::TryToWrite(const NetDescription& net, const ModelSpec& model) {
  if (options_.hdf5 && !HasHdf5()) {
    throw ConfigError(
        "snapshot_format is HDF5, which needs its library, and this build lacks it; install "
        "libhdf5-dev and build again, or use snapshot_format: BINARYPROTO");
  }
  if (!options_.hdf5) CheckFitsBinaryFiles(net, model);
  MakeDirectoryOf(options_.prefix);
  const std::string probe = NameOf(options_, 0, ".probe");
  try {
    WriteFileQuickly(probe, "");
    fs::remove(probe);
    TakePrefix();
  } catch (const Error& error) {
    throw Error(error.exit_code(), "no snapshots can be written with snapshot_prefix \"" +
                                       options_.prefix + "\": " + error.what() +
                                       "; make its folder writable, or give another prefix");
  }
  KeepOtherJobsOut();
  if (const int abandoned = RemoveAbandonedFiles(options_.prefix + "_iter_", lock_->is_own());
      abandoned > 0) {
    LOG(INFO) << "removed " << abandoned << " files of " << options_.prefix
              << " that killed workers had not finished";
  }
  is_writable_ = true;
}

std::optional<std::string> Snapshots::WhatCaffePassesOver(const NetDescription& net) const {
  if (!CanWrite() || !options_.hdf5) return std::nullopt;
  for (const LayerDescription& layer : net.layers) {
    if (layer.owned_floats() == 0 || layer.name().find('/') == std::string::npos) continue;
    return "snapshot_format is HDF5, and the name of layer \"" + layer.name() +
           "\" has a /, which parts groups in such files: Caffe passes over its values without an "
           "error; if the snapshots are for Caffe, too, use snapshot_format: BINARYPROTO";
  }
  return std::nullopt;
}

void Snapshots::TakePrefix() {
  if (lock_ && lock_->holder().empty()) return;
  lock_.emplace(options_.prefix + ".lock", options_.owner);
}

bool Snapshots::AnotherJobHasIt() const {
  // A worker of this job that is stopped still has it when another one writes in its place.
  return !lock_->holder().empty() && !lock_->holder().starts_with(options_.owner + ",");
}

void Snapshots::KeepOtherJobsOut() {
  TakePrefix();
  const Time deadline = SteadyNow() + kLongestLease;
  for (bool told = false; AnotherJobHasIt() && !lock_->is_held_here(); told = true) {
    if (SteadyNow() >= deadline) break;
    LOG_IF(WARNING, !told) << "waits for up to " << ToSeconds(kLongestLease) << " s for "
                           << options_.prefix << ", which is in use by " << lock_->holder();
    std::this_thread::sleep_for(kLookAgain);
    TakePrefix();
  }
  if (!AnotherJobHasIt()) return;
  throw ConfigError("snapshot_prefix \"" + options_.prefix + "\" is in use by " + lock_->holder() +
                    "; wait for its end, or give another prefix");
}

bool Snapshots::IsDue(int64_t iteration) const {
  return !options_.prefix.empty() && options_.interval > 0 && iteration % options_.interval == 0;
}

bool Snapshots::IsDueAtEnd(int64_t iteration) const {
  if (options_.prefix.empty()) return false;
  return IsDue(iteration) || options_.after_train;
}

std::string Snapshots::Write(const Engine& engine, const ModelSpec& model, int64_t iteration,
                             std::span<const float> state) {
  const std::string net = NameOf(options_, iteration, ".caffemodel");
  std::string path = NameOf(options_, iteration, ".solverstate");
  MakeDirectoryOf(options_.prefix);
  KeepOtherJobsOut();
  PreparedFile values = PrepareCaffemodel(net, *engine.net(), engine.Values());
  std::error_code ignored;
  const bool replaces = fs::exists(path, ignored);
  // The values are worth having also where the disk is full before the state is there.
  if (!replaces) values.Place();
  SolverState file;
  file.iteration = iteration;
  file.learned_net = net;
  file.current_step = CurrentStep(ToUpdateRule(model.update_rule()), iteration);
  file.history = ToHistory(*engine.net(), model, state);
  PreparedFile prepared = PrepareSolverState(path, file);
  if (replaces) {
    // An older training's state must not stand beside the new model. A link stays, and leads to the
    // new one.
    fs::remove(fs::canonical(path, ignored), ignored);
    values.Place();
  }
  prepared.Place();
  return path;
}

}  // namespace poseidon
