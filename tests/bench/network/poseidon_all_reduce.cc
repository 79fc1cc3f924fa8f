// One rank of Poseidon's all-reduce. Algorithms: automatic, ring, halving_doubling.
#include <gflags/gflags.h>

#include <sstream>
#include <stdexcept>
#include <vector>

#include "poseidon/communicator.h"
#include "tests/bench/network/all_reduce_cells.h"

DEFINE_int32(rank, 0, "this rank");
DEFINE_string(endpoints, "", "host:port of every rank, with commas");

namespace poseidon::network {
namespace {

std::vector<std::string> Endpoints() {
  std::vector<std::string> endpoints;
  std::istringstream stream(FLAGS_endpoints);
  for (std::string endpoint; std::getline(stream, endpoint, ',');) endpoints.push_back(endpoint);
  return endpoints;
}

CollectiveOptions OptionsOf(const std::string& algorithm) {
  CollectiveOptions options;
  if (algorithm == "ring") {
    options.scheme = CollectiveScheme::kRing;
  } else if (algorithm == "halving_doubling") {
    options.scheme = CollectiveScheme::kHalvingDoubling;
  } else if (algorithm != "automatic") {
    throw std::runtime_error("no algorithm '" + algorithm + "'");
  }
  return options;
}

class PoseidonSystem : public System {
 public:
  PoseidonSystem() : communicator_({.rank = FLAGS_rank, .endpoints = Endpoints()}) {}

  int rank() const override { return communicator_.rank(); }
  int ranks() const override { return communicator_.workers(); }
  std::function<void()> Prepare(const std::string& algorithm, std::span<float> floats) override {
    return [this, floats, options = OptionsOf(algorithm)] {
      communicator_.AllReduce(floats, options);
    };
  }

 private:
  Communicator communicator_;
};

}  // namespace
}  // namespace poseidon::network

int main(int argc, char** argv) {
  using namespace poseidon::network;
  return Main(argc, argv, [] {
    PoseidonSystem system;
    MeasureCells(system);
  });
}
