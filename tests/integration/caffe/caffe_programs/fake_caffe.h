// A library and programs that look to a linker like BVLC Caffe's, for tests of what the preloaded
// library stands before and what it refuses.
#pragma once

#include <string>

namespace caffe {

class SolverParameter {};

template <typename Dtype>
class Solver {
 public:
  explicit Solver(const SolverParameter& parameter);
  explicit Solver(const std::string& file);
  virtual ~Solver();
  virtual void Solve(const char* resume_file);
};

template <typename Dtype>
class SGDSolver : public Solver<Dtype> {
 public:
  explicit SGDSolver(const SolverParameter& parameter) : Solver<Dtype>(parameter) {}
};

}  // namespace caffe
