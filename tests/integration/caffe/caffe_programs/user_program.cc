// A user's own program with a stock Caffe solver, and the call that makes it a job's worker.
//   user_program SOLVER [JOB RANK]
#include <caffe/caffe.hpp>
#include <memory>
#include <string>

#include "caffe_adapter/patch/caffe_patch.h"
#include "core/program.h"

namespace poseidon {
namespace {

ExitCode Train(int argc, char** argv) {
  ::caffe::SolverParameter parameter;
  ::caffe::ReadSolverParamsFromTextFileOrDie(argv[1], &parameter);
  const std::unique_ptr<::caffe::Solver<float>> solver(
      ::caffe::SolverRegistry<float>::CreateSolver(parameter));
  std::unique_ptr<CaffePatch> worker;
  if (argc > 3) {
    worker = PatchSolver(*solver, {.config = ReadJobConfig(argv[2]),
                                   .wanted_rank = std::stoi(argv[3]),
                                   .host = "",
                                   .trace_directory = "",
                                   .on_error = {}});
  }
  solver->Step(solver->param().max_iter());
  if (worker != nullptr) worker->Finish();
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  return poseidon::RunProgram("user_program", argv[0], [&] { return poseidon::Train(argc, argv); });
}
