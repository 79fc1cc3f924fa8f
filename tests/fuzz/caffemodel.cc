// A .caffemodel, of whatever format, read into a net.
#include "caffe_adapter/files/caffemodel.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const poseidon::NetDescription net = poseidon::FuzzedNet();
  const poseidon::MemoryFile file(data, size);
  poseidon::NetValues values;
  for (const poseidon::LayerDescription& layer : net.layers) {
    values.emplace_back(layer.parameters.size());
  }
  poseidon::ReadOrRefuse([&] { poseidon::ReadCaffemodel(file.path(), net, values); });
  return 0;
}
