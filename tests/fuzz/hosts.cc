// A hosts file, and who goes where.
#include "launch/host_list.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const poseidon::MemoryFile file(data, size);
  poseidon::ReadOrRefuse([&] {
    const std::vector<poseidon::Host> hosts = poseidon::ReadHosts(file.path());
    poseidon::AssignRanks(hosts, 3, 2, true, "hosts");
    poseidon::AssignRanks(hosts, 3, 2, false, "hosts");
  });
  return 0;
}
