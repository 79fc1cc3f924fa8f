// A solver's prototxt, without the nets that it names.
#include "caffe_adapter/net/solver.h"

#include "caffe_adapter/net/solver_checks.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  poseidon::ReadOrRefuse([&] {
    poseidon::caffe::SolverParameter solver;
    const poseidon::TextLocations locations = poseidon::ParseText(
        std::string(reinterpret_cast<const char*>(data), size), "solver.prototxt", solver);
    const poseidon::Locate locate = [&](const std::string& path) {
      return locations.Find(poseidon::caffe::SolverParameter::default_instance(), path);
    };
    poseidon::SetSolverType(solver, locate);
    poseidon::CheckSolver(solver, locate);
    poseidon::ToUpdateRuleSpec(solver);
  });
  return 0;
}
