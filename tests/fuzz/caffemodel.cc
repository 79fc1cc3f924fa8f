// A binary .caffemodel, of whatever version, read into a net.
#include "caffe_adapter/files/caffemodel.h"

#include <string_view>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Would be read by HDF5's library, which is not what is tried here.
  if (std::string_view(reinterpret_cast<const char*>(data), size).starts_with("\x89HDF")) return 0;
  static const poseidon::NetDescription net = poseidon::FuzzedNet();
  const poseidon::MemoryFile file(data, size);
  poseidon::NetValues values;
  for (const poseidon::LayerDescription& layer : net.layers) {
    values.emplace_back(layer.parameters.size());
  }
  poseidon::ReadOrRefuse([&] { poseidon::ReadCaffemodel(file.path(), net, values); });
  return 0;
}
