// Caffe's solver files and the nets they name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "caffe_adapter/net/net.h"
#include "proto/caffe.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// A net as a solver uses it, in one phase.
struct SolverNet {
  caffe::NetParameter net;
  caffe::Phase phase = caffe::TRAIN;
  caffe::NetState state;  // the solver's train_state or test_state: level and stages
  Locate locate;          // where a field of `net` stands
};

struct Solver {
  caffe::SolverParameter parameter;  // `type` set also where the file has the older solver_type
  SolverNet train;
  std::vector<SolverNet> tests;  // one for each test_iter
  Locate locate;                 // where a field of `parameter` stands
};

// Reads a solver file and the nets it names. Paths in it are relative to the working directory, as
// in Caffe; a net that is not there is looked for beside the solver file and in the directories
// above it (core/named_file.h).
//
// Throws ConfigError, with file, line and column, for whatever can't work: an unknown field or
// solver type, no net or two, a field missing that lr_policy needs, a value out of range, test_iter
// without a net that has layers in TEST, a train net without loss. snapshot_diff and debug_info are
// not supported and are refused by name. The fields that say when to test, display and snapshot are
// the caller's to obey.
Solver LoadSolver(const std::string& path);

// The description of a net of a solver, with the batch `batch_size` if it is given
// (DescribeOptions).
NetDescription DescribeNet(const SolverNet& net, std::optional<int64_t> batch_size = std::nullopt);

// What people tell a test net by: its number, from 0, and the stages that its test_state says, as
// "test net 1 (stage val)".
std::string TestNetName(const Solver& solver, size_t number);

// The fields that decide an update. The parameter must have passed LoadSolver.
UpdateRuleSpec ToUpdateRuleSpec(const caffe::SolverParameter& solver);

}  // namespace poseidon
