// One rank of Gloo's all-reduce. Algorithms: gloo_all_reduce.h.
#include <gflags/gflags.h>

#include "tests/bench/network/all_reduce_cells.h"
#include "tests/bench/network/gloo_all_reduce.h"

DEFINE_int32(rank, 0, "this rank");
DEFINE_int32(ranks, 1, "all ranks");
DEFINE_string(host, "", "this rank's address");
DEFINE_string(store, "", "empty directory where ranks meet");

namespace poseidon::network {
namespace {

class GlooSystem : public System {
 public:
  int rank() const override { return gloo_.rank(); }
  int ranks() const override { return gloo_.ranks(); }
  std::function<void()> Prepare(const std::string& algorithm, std::span<float> floats) override {
    return gloo_.Prepare(algorithm, floats);
  }

 private:
  GlooRanks gloo_{FLAGS_rank, FLAGS_ranks, FLAGS_store, FLAGS_host};
};

}  // namespace
}  // namespace poseidon::network

int main(int argc, char** argv) {
  using namespace poseidon::network;
  return Main(argc, argv, [] {
    GlooSystem system;
    MeasureCells(system);
  });
}
