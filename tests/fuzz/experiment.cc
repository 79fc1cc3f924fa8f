// An experiment's file.
#include "experiments/experiment_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const poseidon::MemoryFile file(data, size);
  poseidon::ReadOrRefuse([&] { poseidon::ReadExperiment(file.path()); });
  return 0;
}
