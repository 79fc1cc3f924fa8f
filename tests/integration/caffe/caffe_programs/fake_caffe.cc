// libcaffe.so of no version: it has solvers, but not all constructors unless it is told to.
#include "tests/integration/caffe/caffe_programs/fake_caffe.h"

namespace caffe {

template <typename Dtype>
Solver<Dtype>::Solver(const SolverParameter& /*parameter*/) {}

#ifdef ALL_CONSTRUCTORS
template <typename Dtype>
Solver<Dtype>::Solver(const std::string& /*file*/) {}
#endif

template <typename Dtype>
Solver<Dtype>::~Solver() = default;

template <typename Dtype>
void Solver<Dtype>::Solve(const char* /*resume_file*/) {}

template class Solver<float>;

}  // namespace caffe
