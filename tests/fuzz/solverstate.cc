// A .solverstate, read and fitted to a net that Adam trains.
#include "caffe_adapter/files/solver_state.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const poseidon::NetDescription net = poseidon::FuzzedNet();
  static const poseidon::ModelSpec model = [] {
    poseidon::ModelSpec spec = poseidon::ToModelSpec(net, {});
    spec.mutable_update_rule()->set_type("Adam");
    return spec;
  }();
  const poseidon::MemoryFile file(data, size);
  poseidon::ReadOrRefuse([&] {
    const poseidon::SolverState state = poseidon::ReadSolverState(file.path());
    poseidon::FromHistory(file.path(), net, model, state.history);
  });
  return 0;
}
