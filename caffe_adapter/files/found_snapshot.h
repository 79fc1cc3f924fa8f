// Snapshots that training can go on from: PREFIX_iter_N.solverstate and the model that it names.
#pragma once

#include <optional>
#include <string>

#include "caffe_adapter/files/solver_state.h"

namespace poseidon {

// The newest whole snapshot with the prefix: the path of its solverstate. What is not whole is
// passed over with a word in the log.
std::optional<std::string> FindLatestSnapshot(const std::string& prefix);

// A snapshot's solverstate and where its model is: as the file says, or beside it.
struct FoundSnapshot {
  std::string path;
  SolverState state;
  std::string model;
};
// Throws DataError.
FoundSnapshot ReadSnapshot(const std::string& path);

}  // namespace poseidon
