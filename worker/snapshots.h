// Snapshots: a training's state on disk as Caffe writes it, PREFIX_iter_N.caffemodel with the net's
// values and PREFIX_iter_N.solverstate with what the solver keeps.
//
// Each file is there whole or not at all, the model first; so the newest solverstate whose model
// can be read is a whole snapshot, whenever the process was killed. One job at a time writes with a
// prefix: two would go on from each other's.
//
//   Snapshots snapshots({.prefix = "out/lenet", .interval = 500, .owner = "the job \"lenet\""});
//   snapshots.CheckWritable(net, model);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/files/file_lock.h"
#include "worker/engine/engine.h"

namespace poseidon {

struct SnapshotOptions {
  std::string prefix;    // empty: no snapshots
  int64_t interval = 0;  // iterations; 0: none on the way
  bool after_train = true;
  bool hdf5 = false;            // Caffe's HDF5 files instead of binary Protobuf
  std::string owner = "a job";  // in words that no other job has
};

class Snapshots {
 public:
  explicit Snapshots(SnapshotOptions options) : options_(std::move(options)) {}

  // Whether the solver says where to.
  bool CanWrite() const { return !options_.prefix.empty(); }
  // Where some will be written, tries whether those of `net` and its `model` can be: a training of
  // days is not to end at its first one. Makes the prefix's directory, and removes there what
  // killed workers had begun to write. Throws Error that says what to do, as where another job
  // writes there. Waits for up to two minutes where that may have ended with its machine.
  void CheckWritable(const NetDescription& net, const ModelSpec& model);
  // Before one is written that was asked for: why none of these can be, as above, where that was
  // not tried at the start; nothing if they can.
  std::optional<std::string> WhyNotWritable(const NetDescription& net, const ModelSpec& model);
  // What Caffe would pass over in snapshots of `net`, in words for the user, if it is something.
  std::optional<std::string> WhatCaffePassesOver(const NetDescription& net) const;
  // Whether one is due before `iteration`, which is not the training's first.
  bool IsDue(int64_t iteration) const;
  // Whether one is due at the training's end.
  bool IsDueAtEnd(int64_t iteration) const;

  // `state` is the optimizer state as the session collects it. Throws Error naming the file and the
  // cause, as where another job writes there; an earlier snapshot is untouched. Returns the
  // solverstate's path.
  std::string Write(const Engine& engine, const ModelSpec& model, int64_t iteration,
                    std::span<const float> state);

 private:
  void TryToWrite(const NetDescription& net, const ModelSpec& model);
  // Tries to have the lock from now on.
  void TakePrefix();
  // Whether it could not, as another job has it.
  bool AnotherJobHasIt() const;
  void KeepOtherJobsOut();

  SnapshotOptions options_;
  std::optional<FileLock> lock_;  // of the prefix, once this writes there
  bool is_writable_ = false;      // as has been tried
};

}  // namespace poseidon
