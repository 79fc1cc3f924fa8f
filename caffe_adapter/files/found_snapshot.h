// Snapshots that training can go on from: PREFIX_iter_N.solverstate and the model that it names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/solver_state.h"
#include "caffe_adapter/net/solver.h"
#include "proto/job.pb.h"

namespace poseidon {

// Throws ConfigError where training is to go on from its latest snapshot and the solver has no
// snapshot_prefix, so that it would begin anew each time.
void CheckLatestSnapshot(const Training& training, const Solver& solver);

// The solverstates that are there with a prefix at some moment. What is written later is told from
// them without a clock, as that may be set back meanwhile: it is another file, or one that has
// changed. While the directory or a file can't be read, what is in it is not guessed: that is Error
// of kFailure, as it may pass, and ConfigError where this user may not read it.
class SnapshotFiles {
 public:
  SnapshotFiles() = default;  // none
  explicit SnapshotFiles(const std::string& prefix);
  // Whether the path leads to one of them, as it was then.
  bool Has(const std::filesystem::path& path) const;

 private:
  // Inode, seconds and nanoseconds of the last change.
  using Identity = std::tuple<uint64_t, int64_t, int64_t>;
  static Identity IdentityOf(const std::filesystem::path& path);

  std::map<std::filesystem::path, Identity> files_;
};

// The whole snapshot with the prefix of the highest iteration: the path of its solverstate. What is
// not whole, the model or the state, also where it was cut off between two layers or two blobs, is
// passed over with a word in the log, and `earlier` ones without one. Where there is
// no directory there is no snapshot. Throws Error of kFailure where the directory or a file can't
// be read now, as it may be another time, and training must not go back behind it; ConfigError
// where this user may not read the directory or a solverstate in it.
std::optional<std::string> FindLatestSnapshot(const std::string& prefix,
                                              const SnapshotFiles& earlier = {});

// For the user, about FindLatestSnapshot's choice: that another with the prefix is of a lower
// iteration and was written after it, as by a training that has begun anew; "" if none was. Throws
// Error of kFailure likewise.
std::string WhyNotTheNewest(const std::string& prefix, const std::string& chosen);

// For the user, about a training that does not go on from a snapshot: that there are some with its
// prefix; "" if there are none, or the directory can't be read.
std::string WhatLiesInTheWay(const std::string& prefix);

// A snapshot's solverstate and where its model is: the file of the name that the solverstate says
// which lies beside it, else where it says. Both are written into one directory and copied
// together, and where they came from there may be another training's since. (Caffe looks there
// only.)
struct FoundSnapshot {
  std::string path;
  SolverState state;
  std::string model;
};
// Throws DataError, and Error of kFailure as FindLatestSnapshot does.
FoundSnapshot ReadSnapshot(const std::string& path);

// Sets the net's values from the snapshot's model. Throws DataError as ReadCaffemodel does
// (caffe_adapter/files/caffemodel.h), and for a model that lacks a layer with values: a file that
// was cut off between two layers can be read without an error.
void ReadSnapshotValues(const FoundSnapshot& snapshot, const NetDescription& net,
                        NetValues& values);

}  // namespace poseidon
