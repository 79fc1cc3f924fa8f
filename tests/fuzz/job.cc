// A job config, up to what all programs check of it.
#include "proto/job_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  poseidon::ReadOrRefuse([&] {
    const poseidon::JobConfig config = poseidon::ParseJobConfig(text, "job.prototxt");
    poseidon::CheckClusterAndCommunication(config.job);
    poseidon::WithoutKey(config.job);
  });
  return 0;
}
