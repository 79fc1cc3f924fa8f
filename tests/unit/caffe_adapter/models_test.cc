// The nets of configs/models: their layers' parameters and shapes are those of layers.csv beside
// them, and their solvers can be loaded.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "caffe_adapter/net/solver.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

const char* const kModels[] = {"lenet",     "cifar10_quick", "cifar10_full",  "alexnet",
                               "googlenet", "vgg19",         "vgg19_22k",     "inception_v3",
                               "resnet50",  "resnet101",     "resnet101_22k", "resnet152"};

std::string File(const std::string& model, const std::string& name) {
  return "configs/models/" + model + "/" + name;
}

// Of the data: images as they are stored, larger than what is cropped from them.
Shape RecordShape(const std::string& model) {
  if (model == "lenet") return {1, 28, 28};
  if (model.starts_with("cifar10")) return {3, 32, 32};
  return {3, 320, 320};
}

NetDescription Describe(const std::string& model, caffe::Phase phase) {
  caffe::NetParameter net;
  ReadTextFile(File(model, "net.prototxt"), net);
  DescribeOptions options;
  options.batch_size = 1;
  options.record_shape = RecordShape(model);
  return DescribeNet(net, phase, options);
}

std::string ShapeText(const Shape& shape) {  // without the batch
  std::string text;
  for (size_t i = 1; i < shape.size(); ++i) {
    text += (text.empty() ? "" : "x") + std::to_string(shape[i]);
  }
  return text;
}

// "name,type,weights,bias,multiply-adds,output shape", as in layers.csv. BatchNorm has no row
// there, and neither has Scale any multiply-adds.
std::vector<std::string> Rows(const NetDescription& net) {
  std::map<std::string, std::string> shapes;
  for (const LayerDescription& layer : net.layers) {
    shapes[layer.name()] = ShapeText(layer.tops[0].shape);
  }
  std::vector<std::string> rows;
  const ModelSpec model = ToModelSpec(net, caffe::SolverParameter());
  for (const LayerSpec& layer : model.layers()) {
    int64_t counts[2] = {0, 0};
    for (int b = 0; b < layer.blobs_size(); ++b) {
      const auto& shape = layer.blobs(b).shape();
      counts[b] = Count(Shape(shape.begin(), shape.end()));
    }
    const int64_t multiply_adds = layer.type() == "Scale" ? 0 : layer.multiply_adds();
    std::ostringstream row;
    row << layer.name() << ',' << layer.type() << ',' << counts[0] << ',' << counts[1] << ','
        << multiply_adds << ',' << shapes.at(layer.name());
    rows.push_back(row.str());
  }
  return rows;
}

std::vector<std::string> ExpectedRows(const std::string& model) {
  std::ifstream file(File(model, "layers.csv"));
  std::vector<std::string> rows;
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) rows.push_back(line.substr(0, line.rfind(',')));
  return rows;
}

class ModelsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelsTest, EveryLayerHasThePublishedParameters) {
  if (!fs::exists(File(GetParam(), "layers.csv"))) GTEST_SKIP() << "no published counts";
  EXPECT_EQ(Rows(Describe(GetParam(), caffe::TRAIN)), ExpectedRows(GetParam()));
}

TEST_P(ModelsTest, HasATestPhaseWithAccuracy) {
  const NetDescription net = Describe(GetParam(), caffe::TEST);
  int accuracies = 0;
  for (const LayerDescription& layer : net.layers) accuracies += layer.type() == "Accuracy" ? 1 : 0;
  EXPECT_GE(accuracies, 1);
}

TEST_P(ModelsTest, SolverCanBeLoaded) {
  const Solver solver = LoadSolver(File(GetParam(), "solver.prototxt"));
  EXPECT_EQ(solver.tests.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(All, ModelsTest, ::testing::ValuesIn(kModels),
                         [](const auto& test) { return std::string(test.param); });

// Those whose data are not cropped also have a form that a program hands images to.
TEST(ModelsTest, DeployedFormsReadImagesOfTheDatasShape) {
  DescribeOptions options;
  options.state.add_stage("deploy");
  for (const char* model : {"lenet", "cifar10_quick", "cifar10_full"}) {
    SCOPED_TRACE(model);
    caffe::NetParameter net;
    ReadTextFile(File(model, "net.prototxt"), net);
    const NetDescription deployed = DescribeNet(net, caffe::TEST, options);
    Shape one_image = RecordShape(model);
    one_image.insert(one_image.begin(), 1);
    EXPECT_EQ(deployed.layers.front().tops[0].shape, one_image);
    EXPECT_EQ(deployed.layers.back().type(), "Softmax");
    for (const LayerDescription& layer : deployed.layers) EXPECT_FALSE(layer.shape_source);
  }
}

TEST(ModelsTest, EveryDirectoryIsTested) {
  size_t directories = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("configs/models")) {
    directories += entry.is_directory() ? 1 : 0;
  }
  EXPECT_EQ(directories, std::size(kModels));
}

}  // namespace
}  // namespace poseidon
