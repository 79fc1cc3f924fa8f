// libcaffe.so of no version: it has solvers, but not all constructors.
#include "tests/integration/caffe_programs/fake_caffe.h"

namespace caffe {

template <typename Dtype>
Solver<Dtype>::Solver(const SolverParameter& /*parameter*/) {}

template <typename Dtype>
Solver<Dtype>::~Solver() = default;

template <typename Dtype>
void Solver<Dtype>::Solve(const char* /*resume_file*/) {}

template class Solver<float>;

}  // namespace caffe
