// A net's prototxt, of whatever format, up to its description in both phases.
#include "caffe_adapter/net/net.h"

#include "tests/fuzz/fuzz.h"

using poseidon::DescribeNet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  poseidon::ReadOrRefuse([&] {
    poseidon::caffe::NetParameter net;
    const poseidon::TextLocations locations = poseidon::ParseText(
        std::string(reinterpret_cast<const char*>(data), size), "net.prototxt", net);
    // Would open whatever file it names; so would other layers without a record's shape.
    for (const auto& layer : net.layer()) {
      if (layer.type() == "HDF5Data") return;
    }
    if (net.DebugString().find("HDF5_DATA") != std::string::npos ||
        net.DebugString().find("hdf5_data") != std::string::npos) {
      return;
    }
    poseidon::DescribeOptions options;
    options.locate = [&](const std::string& path) {
      return locations.Find(poseidon::caffe::NetParameter::default_instance(), path);
    };
    options.record_shape = poseidon::Shape{3, 40, 32};
    const poseidon::NetDescription train = DescribeNet(net, poseidon::caffe::TRAIN, options);
    poseidon::ToModelSpec(train, {});
    DescribeNet(net, poseidon::caffe::TEST, options);
  });
  return 0;
}
