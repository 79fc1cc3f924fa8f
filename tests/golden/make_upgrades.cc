#include <caffe/caffe.hpp>
#include <caffe/util/upgrade_proto.hpp>
#include <filesystem>

#include "tests/golden/golden.h"

namespace poseidon {

void MakeUpgradeFiles(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/upgrade")) {
    std::filesystem::path path = entry.path();
    if (path.extension() != ".prototxt") continue;
    ::caffe::NetParameter net;
    ::caffe::ReadNetParamsFromTextFileOrDie(path.string(), &net);
    WriteMessage(net, path.replace_extension(".binaryproto").string());
  }
}

}  // namespace poseidon
