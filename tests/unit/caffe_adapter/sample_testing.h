// For tests of layers that read samples.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/net/net.h"
#include "proto/text_format.h"

namespace poseidon {

// The layer of a net that reads something, and its source.
class SourceUnderTest {
 public:
  // Tops are called data, label, top2, ...
  SourceUnderTest(const std::string& type, int tops, const std::string& fields,
                  caffe::Phase phase = caffe::TRAIN) {
    std::string text = "layer { name: 'd' type: '" + type + "' top: 'data' ";
    if (tops > 1) text += "top: 'label' ";
    for (int i = 2; i < tops; ++i) text += "top: 'top" + std::to_string(i) + "' ";
    caffe::NetParameter net;
    ParseText(text + fields + " }", "net.prototxt", net);
    layer_ = DescribeNet(net, phase).layers[0];
    source_ = MakeSampleSource(layer_);
  }

  const LayerDescription& layer() const { return layer_; }
  SampleSource& source() const { return *source_; }

  // One sample of each top.
  std::vector<std::vector<float>> Read(int64_t record, uint64_t seed = 1) const {
    std::vector<std::vector<float>> values;
    for (const BlobDescription& top : layer_.tops) {
      values.emplace_back(Count(top.shape, 1, static_cast<int>(top.shape.size())));
    }
    const std::vector<std::span<float>> tops(values.begin(), values.end());
    source_->Read(record, seed, tops);
    return values;
  }

 private:
  LayerDescription layer_;
  std::unique_ptr<SampleSource> source_;
};

}  // namespace poseidon
