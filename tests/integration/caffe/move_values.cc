// Moves every value of a model by one unit in the last place (tests/integration/rounding.py):
//   move_values --from=FILE.caffemodel --to=FILE.caffemodel --seed=N
#include <gflags/gflags.h>

#include <random>
#include <vector>

#include "caffe_adapter/files/caffemodel.h"
#include "core/program.h"
#include "tests/integration/caffe/moved_values.h"

DEFINE_string(from, "", "The model.");
DEFINE_string(to, "", "Where to write it.");
DEFINE_uint64(seed, 1, "Which values go up and which down.");

namespace poseidon {
namespace {

ExitCode Run() {
  caffe::NetParameter net;
  ReadBinaryFile(FLAGS_from, net);
  std::mt19937_64 random(FLAGS_seed);
  for (caffe::LayerParameter& layer : *net.mutable_layer()) {
    for (caffe::BlobProto& blob : *layer.mutable_blobs()) {
      MoveByOneUnit(random,
                    {blob.mutable_data()->mutable_data(), static_cast<size_t>(blob.data_size())});
    }
  }
  WriteBinaryFile(FLAGS_to, net);
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return poseidon::RunProgram("move_values", argv[0], poseidon::Run);
}
