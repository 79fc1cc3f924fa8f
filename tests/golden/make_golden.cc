// make_golden DIRECTORY: runs BVLC Caffe and writes the golden files. README.md says what they are.
#include <glog/logging.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/golden/golden.h"

namespace poseidon {

void WriteMessage(const google::protobuf::Message& message, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  CHECK(message.SerializeToOstream(&file) && file.flush()) << "can't write " << path;
}

}  // namespace poseidon

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::WARNING;
  CHECK_EQ(argc, 2) << "make_golden DIRECTORY";
  std::string scratch = std::filesystem::temp_directory_path() / "make_golden.XXXXXX";
  CHECK(mkdtemp(scratch.data()) != nullptr);
  caffe::Caffe::set_mode(caffe::Caffe::CPU);
  poseidon::MakeLayerFiles(argv[1]);
  poseidon::MakeSolverFiles(argv[1], scratch);
  poseidon::MakeDataFiles(argv[1], scratch);
  poseidon::MakeUpgradeFiles(argv[1]);
  std::filesystem::remove_all(scratch);
}
