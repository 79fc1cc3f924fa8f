// Whether a solver can work, as far as its own fields tell.
#pragma once

#include "caffe_adapter/net/net.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Sets `type` from the older solver_type where the file has that. Throws ConfigError if it has
// both.
void SetSolverType(caffe::SolverParameter& solver, const Locate& locate);

// Throws ConfigError, with its place, for a field that is missing, out of range or not supported.
void CheckSolver(const caffe::SolverParameter& solver, const Locate& locate);

}  // namespace poseidon
