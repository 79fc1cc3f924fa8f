// A net and a .caffemodel written here give in OpenCV's dnn module, which reads Caffe's files by a
// reader of its own, what they give in our engine.
#include <gtest/gtest.h>

#include <fstream>
#include <opencv2/dnn.hpp>
#include <random>

#include "caffe_adapter/files/caffemodel.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"
#include "worker/torch/torch_net.h"

namespace poseidon {
namespace {

constexpr int kBatch = 2;

struct Case {
  const char* name;
  Shape image;
  std::string layers;  // from "data" on
};

std::ostream& operator<<(std::ostream& out, const Case& given) { return out << given.name; }

std::string NetText(const Case& given) {
  std::string text = "name: \"" + std::string(given.name) + "\"\n";
  text += "layer { name: \"data\" type: \"Input\" top: \"data\" input_param { shape {";
  text += " dim: " + std::to_string(kBatch);
  for (const int64_t extent : given.image) text += " dim: " + std::to_string(extent);
  return text + " } } }\n" + given.layers;
}

// Random values; variances and the statistics' weight are positive.
NetValues RandomValues(const NetDescription& net) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  NetValues values;
  for (const LayerDescription& layer : net.layers) {
    std::vector<std::vector<float>>& blobs = values.emplace_back();
    for (const ParameterDescription& parameter : layer.parameters) {
      std::vector<float>& blob = blobs.emplace_back(Count(parameter.shape));
      const float scale = 1 / std::sqrt(static_cast<float>(std::max<int64_t>(
                                  1, Count(parameter.shape) / parameter.shape[0])));
      for (float& value : blob) value = scale * normal(random);
    }
    if (layer.type() == "BatchNorm") {
      for (float& value : blobs[1]) value = 0.5F + value * value;
      blobs[2] = {1};
    }
  }
  return values;
}

std::vector<float> Ours(const NetDescription& net, const NetValues& values,
                        const std::vector<float>& image) {
  BatchReaderOptions options;
  options.feed = [&](const LayerDescription&, int64_t, std::span<const std::span<float>> tops) {
    std::copy(image.begin(), image.end(), tops[0].begin());
  };
  TorchNet torch(net, options);
  std::vector<std::vector<float>> memory;
  for (const auto& blobs : values) {
    std::vector<float>& joined = memory.emplace_back();
    for (const std::vector<float>& blob : blobs) {
      joined.insert(joined.end(), blob.begin(), blob.end());
    }
  }
  const int steps = static_cast<int>(net.layers.size());
  for (int step = 0; step < steps; ++step) {
    if (!memory[step].empty()) torch.BindParameters(step, memory[step]);
  }
  torch.LoadBatch(0, 1);
  for (int step = 0; step < steps; ++step) torch.Forward(step);
  return torch.TopValues(steps - 1, 0);
}

std::vector<float> Theirs(const std::string& net, const std::string& model, const Shape& image,
                          std::vector<float>& values) {
  cv::dnn::Net dnn = cv::dnn::readNetFromCaffe(net, model);
  dnn.setPreferableBackend(cv::dnn::DNN_BACKEND_OPENCV);
  std::vector<int> extents = {kBatch};
  for (const int64_t extent : image) extents.push_back(static_cast<int>(extent));
  dnn.setInput(cv::Mat(extents, CV_32F, values.data()), "data");
  const cv::Mat result = dnn.forward().clone();
  return {result.ptr<float>(), result.ptr<float>() + result.total()};
}

class OpenCvDnnTest : public ::testing::TestWithParam<Case> {};

TEST_P(OpenCvDnnTest, GivesWhatOurEngineGives) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("net.prototxt");
  std::ofstream(path) << NetText(GetParam());
  caffe::NetParameter parameter;
  ReadTextFile(path, parameter);
  const NetDescription net = DescribeNet(parameter, caffe::TEST);
  const NetValues values = RandomValues(net);
  const std::string model = directory.Path("net.caffemodel");
  WriteCaffemodel(model, net, values);

  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> image(kBatch * Count(GetParam().image));
  for (float& value : image) value = uniform(random);
  const std::vector<float> ours = Ours(net, values, image);
  const std::vector<float> theirs = Theirs(path, model, GetParam().image, image);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], 1e-4 + 1e-3 * std::abs(theirs[i])) << i;
  }
}

std::string Layer(const std::string& type, const std::string& name, const std::string& bottoms,
                  const std::string& rest = "", const std::string& top = "") {
  std::string text = "layer { name: '" + name + "' type: '" + type + "'";
  std::istringstream names(bottoms);
  for (std::string bottom; names >> bottom;) text += " bottom: '" + bottom + "'";
  return text + " top: '" + (top.empty() ? name : top) + "' " + rest + " }\n";
}

std::string Convolution(const std::string& name, const std::string& bottom,
                        const std::string& fields) {
  return Layer("Convolution", name, bottom, "convolution_param { " + fields + " }");
}

std::string Pooling(const std::string& name, const std::string& bottom, const std::string& fields) {
  return Layer("Pooling", name, bottom, "pooling_param { " + fields + " }");
}

std::string InnerProduct(const std::string& name, const std::string& bottom, int outputs) {
  return Layer("InnerProduct", name, bottom,
               "inner_product_param { num_output: " + std::to_string(outputs) + " }");
}

std::vector<Case> NetsForOpenCv() {
  return {
      {"lenet",
       {1, 28, 28},
       Convolution("conv1", "data", "num_output: 20 kernel_size: 5") +
           Pooling("pool1", "conv1", "pool: MAX kernel_size: 2 stride: 2") +
           Convolution("conv2", "pool1", "num_output: 50 kernel_size: 5") +
           Pooling("pool2", "conv2", "pool: MAX kernel_size: 2 stride: 2") +
           InnerProduct("ip1", "pool2", 500) + Layer("ReLU", "relu1", "ip1", "", "ip1") +
           InnerProduct("ip2", "ip1", 10) + Layer("Softmax", "prob", "ip2")},
      {"groups_and_lrn",
       {3, 35, 33},
       Convolution("conv1", "data", "num_output: 8 kernel_size: 5 stride: 2 pad: 1") +
           Layer("ReLU", "relu1", "conv1", "", "conv1") +
           Layer("LRN", "norm1", "conv1", "lrn_param { local_size: 5 alpha: 0.01 beta: 0.75 }") +
           Pooling("pool1", "norm1", "pool: MAX kernel_size: 3 stride: 2") +
           Convolution("conv2", "pool1",
                       "num_output: 12 kernel_size: 3 pad: 2 dilation: 2 group: 4") +
           Layer("Sigmoid", "sigmoid", "conv2") +
           Pooling("pool2", "sigmoid", "pool: AVE kernel_size: 2 stride: 2") +
           Layer("Flatten", "flat", "pool2") + InnerProduct("ip", "flat", 7)},
      {"residual",
       {3, 20, 20},
       Convolution("conv1", "data", "num_output: 6 kernel_size: 3 pad: 1 bias_term: false") +
           Layer("BatchNorm", "bn1", "conv1", "", "conv1") +
           Layer("Scale", "scale1", "conv1", "scale_param { bias_term: true }", "conv1") +
           Layer("PReLU", "prelu1", "conv1", "", "conv1") +
           Convolution("conv2", "conv1", "num_output: 6 kernel_size: 3 pad: 1") +
           Layer("Eltwise", "sum", "conv1 conv2") + Layer("ELU", "elu", "sum") +
           Layer("Concat", "concat", "elu conv1") +
           Pooling("pool", "concat", "pool: AVE global_pooling: true") +
           InnerProduct("ip", "pool", 5) + Layer("Softmax", "prob", "ip")}};
}

INSTANTIATE_TEST_SUITE_P(Nets, OpenCvDnnTest, ::testing::ValuesIn(NetsForOpenCv()));

}  // namespace
}  // namespace poseidon
