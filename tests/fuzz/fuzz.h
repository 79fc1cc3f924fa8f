// What fuzz targets have in common.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "caffe_adapter/net/net.h"
#include "core/error.h"
#include "proto/text_format.h"

namespace poseidon {

// A file of these bytes, in memory, for readers that take a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : file_(memfd_create("fuzz", 0)) {
    for (size_t done = 0; done < size;) {
      const ssize_t written = write(file_, data + done, size - done);
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

// Runs `read`. An Error is how a reader refuses its input; whatever else it throws ends the fuzzer.
template <typename Read>
void ReadOrRefuse(Read read) {
  try {
    read();
  } catch (const Error&) {
  }
}

// A net small enough to read thousands of models a second into.
inline NetDescription FuzzedNet() {
  caffe::NetParameter net;
  ParseText(R"(
      name: 'n'
      layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }
      layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' param { name: 'w' }
        inner_product_param { num_output: 3 } }
      layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' param { name: 'w' }
        inner_product_param { num_output: 3 bias_term: false } }
      layer { name: 'l' type: 'EuclideanLoss' bottom: 'b' bottom: 'x' })",
            "net", net);
  return DescribeNet(net, caffe::TRAIN);
}

}  // namespace poseidon
