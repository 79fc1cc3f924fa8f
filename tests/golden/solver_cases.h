// What Caffe's solvers are asked to train: small nets whose updates are recorded in whole, and
// short trainings of nets like those that Caffe comes with.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

struct SolverCase {
  std::string name;           // of its files
  std::string solver;         // fields in text format, without a net
  std::string net;            // in text format; sources are names of records.h
  std::vector<int> recorded;  // iterations after which the parameters are kept; the last one ends
};

std::vector<SolverCase> SolverCases();

}  // namespace poseidon
