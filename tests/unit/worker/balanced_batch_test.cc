// Which nets can have parts of a batch that differ between workers, and what is said of the others.
#include "worker/engine/balanced_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/text_format.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kData[] =
    "layer { name: 'd' type: 'Data' top: 'x' top: 'y' data_param { source: 'none' batch_size: 6 } "
    "}";
constexpr char kScores[] =
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'"
    " inner_product_param { num_output: 10 } }";
constexpr char kLoss[] =
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'y' top: 'l' ";

NetDescription Describe(const std::string& text) {
  caffe::NetParameter net;
  ParseText(text, "net.prototxt", net);
  DescribeOptions options;
  options.record_shape = Shape{3, 8, 8};
  return DescribeNet(net, caffe::TRAIN, options);
}

std::string WhyNot(const std::string& text) { return WhyNotBalanced(Describe(text)); }

TEST(BalancedBatchTest, NetsThatTakeEachSampleByItselfCan) {
  EXPECT_EQ(WhyNot(std::string(kData) + kScores + kLoss + "}"), "");
  EXPECT_EQ(WhyNot(std::string(kData) +
                   "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c'"
                   " convolution_param { num_output: 2 kernel_size: 3 } }"
                   "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }"
                   "layer { name: 'n' type: 'LRN' bottom: 'c' top: 'n' }"
                   "layer { name: 'o' type: 'Dropout' bottom: 'n' top: 'n' }"
                   "layer { name: 'f' type: 'Reshape' bottom: 'n' top: 'f'"
                   " reshape_param { shape { dim: 0 dim: -1 } } }"
                   "layer { name: 'ip' type: 'InnerProduct' bottom: 'f' top: 'ip'"
                   " inner_product_param { num_output: 10 } }"
                   "layer { name: 'a' type: 'Accuracy' bottom: 'ip' bottom: 'y' top: 'a' }" +
                   kLoss + "loss_weight: 0.5 }"),
            "");
}

TEST(BalancedBatchTest, OthersCannotAndTheLayerIsNamed) {
  EXPECT_THAT(
      WhyNot(std::string(kData) + "layer { name: 'bn' type: 'BatchNorm' bottom: 'x' top: 'x' }" +
             kScores + kLoss + "}"),
      AllOf(HasSubstr("layer \"bn\" (BatchNorm)"), HasSubstr("the worker's own samples")));
  EXPECT_THAT(WhyNot(std::string(kData) +
                     "layer { name: 'r' type: 'Reshape' bottom: 'x' top: 'z'"
                     " reshape_param { shape { dim: 6 dim: -1 } } }" +
                     kScores + kLoss + "}"),
              AllOf(HasSubstr("layer \"r\""), HasSubstr("fixed number of samples")));
  EXPECT_THAT(WhyNot(std::string(kData) +
                     "layer { name: 's' type: 'Slice' bottom: 'x' top: 'a' top: 'b'"
                     " slice_param { axis: 0 } }" +
                     kScores + kLoss + "}"),
              AllOf(HasSubstr("layer \"s\""), HasSubstr("a row for each sample")));
  EXPECT_THAT(WhyNot(std::string(kData) + kScores + kLoss + "loss_param { normalization: NONE } }"),
              AllOf(HasSubstr("layer \"loss\""), HasSubstr("a sum over samples")));
  EXPECT_THAT(WhyNot(std::string(kData) + kScores + kLoss + "loss_param { ignore_label: 3 } }"),
              HasSubstr("labels that are not ignored"));
  EXPECT_THAT(WhyNot(std::string(kData) + kScores +
                     "layer { name: 'sum' type: 'Reduction' bottom: 'ip' top: 'sum'"
                     " loss_weight: 1 }"),
              AllOf(HasSubstr("layer \"sum\""), HasSubstr("no mean over samples")));
  EXPECT_THAT(WhyNot("layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
                     " shape { dim: 6 dim: 3 } shape { dim: 6 } } }" +
                     std::string(kScores) + kLoss + "}"),
              AllOf(HasSubstr("layer \"d\""), HasSubstr("can't be shared out anew")));
}

TEST(BalancedBatchTest, LayersWhoseAxisIsThatOfTheSamplesCannot) {
  const auto with = [](const std::string& layer) {
    return WhyNot(std::string(kData) + "layer { name: 'it' bottom: 'x' top: 'it' " + layer + " }" +
                  kScores + kLoss + "}");
  };
  for (const std::string layer :
       {"type: 'Softmax' softmax_param { axis: 0 }", "type: 'Softmax' softmax_param { axis: -4 }",
        "type: 'Scale' scale_param { axis: 0 }", "type: 'Bias' bias_param { axis: 0 num_axes: 2 }",
        "type: 'InnerProduct' inner_product_param { axis: 0 num_output: 6 }",
        "type: 'Convolution' convolution_param { axis: 0 num_output: 6 kernel_size: 1 }"}) {
    EXPECT_THAT(with(layer), AllOf(HasSubstr("layer \"it\""), HasSubstr("axis 0"))) << layer;
  }
  for (const std::string layer :
       {"type: 'Softmax'", "type: 'Scale'", "type: 'Scale' scale_param { axis: 0 num_axes: 0 }",
        "type: 'Scale' bottom: 'x' scale_param { axis: 0 }", "type: 'Bias' bias_param { axis: -3 }",
        "type: 'Convolution' convolution_param { num_output: 6 kernel_size: 1 }"}) {
    EXPECT_EQ(with(layer), "") << layer;
  }
  const std::string transposed =
      "layer { name: 't' type: 'InnerProduct' bottom: 'x' top: 't' inner_product_param {"
      " num_output: 6 } } layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 't' bottom: 'y'"
      " top: 'l' softmax_param { axis: 0 } }";
  EXPECT_THAT(WhyNot(kData + transposed), AllOf(HasSubstr("layer \"loss\""), HasSubstr("axis 0")));
}

TEST(BalancedBatchTest, RecurrentLayersCannot) {
  for (const std::string type : {"LSTM", "RNN"}) {
    EXPECT_THAT(WhyNot(std::string(kData) +
                       "layer { name: 'r' type: 'Reshape' bottom: 'y' top: 'r' reshape_param {"
                       " shape { dim: 0 dim: 1 } } }"
                       "layer { name: 'z' type: 'Reshape' bottom: 'x' top: 'z' reshape_param {"
                       " shape { dim: 0 dim: 1 dim: -1 } } }"
                       "layer { name: 'it' type: '" +
                       type + "' bottom: 'z' bottom: 'r' top: 'it'" +
                       " recurrent_param { num_output: 2 } }" + kScores + kLoss + "}"),
                AllOf(HasSubstr("layer \"it\" (" + type + ")"), HasSubstr("steps")));
  }
}

TEST(BalancedBatchTest, WhatAPythonLayerDoesIsNotKnown) {
  NetDescription net =
      Describe(std::string(kData) + "layer { name: 'own' type: 'ReLU' bottom: 'x' top: 'x' }" +
               kScores + kLoss + "}");
  ASSERT_EQ(WhyNotBalanced(net), "");
  net.layers[1].parameter.set_type("Python");
  EXPECT_THAT(WhyNotBalanced(net),
              AllOf(HasSubstr("layer \"own\" (Python)"), HasSubstr("only its author knows")));
}

}  // namespace
}  // namespace poseidon
