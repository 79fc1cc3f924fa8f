// What of a net must be the same on all machines.
#include "worker/engine/training_inputs.h"

#include <gtest/gtest.h>

#include "proto/text_format.h"

namespace poseidon {
namespace {

// A net of a layer that reads data and some that compute, with more fields for some of them.
struct Fields {
  std::string data = {};
  std::string transform = {};
  std::string dropout = {};
  std::string loss = {};
};

uint64_t HashOf(const Fields& fields) {
  caffe::NetParameter net;
  ParseText("layer { name: 'd' type: 'Data' top: 'x' top: 'y' data_param { batch_size: 6 " +
                fields.data + " } transform_param { " + fields.transform +
                " } }"
                "layer { name: 'o' type: 'Dropout' bottom: 'x' top: 'x' dropout_param { " +
                fields.dropout +
                " } }"
                "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'"
                " inner_product_param { num_output: 10 } }"
                "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'y' " +
                fields.loss + " }",
            "net.prototxt", net);
  DescribeOptions options;
  options.record_shape = Shape{3, 8, 8};
  return HashOfNet(DescribeNet(net, caffe::TRAIN, options));
}

TEST(HashOfNetTest, WhatTheLayersComputeIsInIt) {
  const uint64_t hash = HashOf({.data = "source: 'a'"});
  EXPECT_EQ(hash, HashOf({.data = "source: 'a'"}));
  EXPECT_NE(hash, HashOf({.data = "source: 'a'", .transform = "mean_value: 104"}));
  EXPECT_NE(hash, HashOf({.data = "source: 'a'", .transform = "mirror: true"}));
  EXPECT_NE(hash, HashOf({.data = "source: 'a'", .dropout = "dropout_ratio: 0.4"}));
  EXPECT_NE(hash, HashOf({.data = "source: 'a'", .loss = "loss_weight: 2"}));
  EXPECT_NE(hash, HashOf({.data = "source: 'a'", .loss = "loss_param { ignore_label: 1 }"}));
}

TEST(HashOfNetTest, WhatIsOfAMachineIsNot) {
  const uint64_t hash = HashOf({.data = "source: 'a'", .transform = "mean_file: 'm'"});
  EXPECT_EQ(hash, HashOf({.data = "source: '/b' backend: LMDB prefetch: 2",
                          .transform = "mean_file: '/b/m'"}));
  EXPECT_EQ(hash, HashOf({.data = "source: 'a'",
                          .transform = "mean_file: 'm'",
                          .loss = "include { phase: TRAIN }"}));
}

}  // namespace
}  // namespace poseidon
