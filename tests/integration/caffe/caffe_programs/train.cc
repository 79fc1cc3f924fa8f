// Trains as `caffe train` does.
#include "tests/integration/caffe/caffe_programs/fake_caffe.h"

int main() {
  const caffe::SolverParameter parameter;
  caffe::Solver<float>* const solver = new caffe::SGDSolver<float>(parameter);
  solver->Solve(nullptr);
  delete solver;
}
