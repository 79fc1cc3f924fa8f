// What a net is beside its layers: parameters shared by name, layers that read no file, and those
// that read the same samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/files/hdf5_writer.h"
#include "core/error.h"
#include "core/random.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"
#include "worker/torch/layers/torch_data_layer.h"
#include "worker/torch/score.h"
#include "worker/torch/torch_engine.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Floats = std::vector<float>;

class TorchNetTest : public ::testing::Test {
 protected:
  TorchEngineOptions Options(const std::string& net, const std::string& solver = "") const {
    directory_.Write("net.prototxt", net);
    TorchEngineOptions options;
    options.solver = LoadSolver(directory_.Write(
        "solver.prototxt", "net: '" + directory_.Path("net.prototxt") +
                               "' base_lr: 1 lr_policy: 'fixed' max_iter: 1 " + solver));
    return options;
  }

  TemporaryDirectory directory_;
};

// An engine whose parameters are random numbers by layer and blob: of the same name, the same.
class Subject {
 public:
  explicit Subject(const TorchEngineOptions& options) : engine(MakeTorchEngine(options)) {
    for (const LayerSpec& layer : engine->model().layers()) {
      size_t count = 0;
      for (const BlobSpec& blob : layer.blobs()) {
        count += Count(Shape(blob.shape().begin(), blob.shape().end()));
      }
      parameters.emplace_back(count);
      gradients.emplace_back(count, 77.0F);  // which Backward must overwrite
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      engine->BindParameters(static_cast<int>(i), parameters[i]);
    }
    engine->FillParameters();
  }

  // The backward pass goes down to the step `last`.
  float Iterate(int64_t iteration, int last = 0) {
    engine->LoadBatch(iteration);
    for (int step = 0; step < engine->steps(); ++step) engine->Forward(step);
    for (int step = engine->steps() - 1; step >= last; --step) {
      GradientBuffers target;
      if (const auto layer = engine->layer_of_step(step)) target.dense = gradients[*layer];
      engine->Backward(step, target);
    }
    return engine->loss();
  }

  std::unique_ptr<Engine> engine;
  std::vector<Floats> parameters;
  std::vector<Floats> gradients;
};

constexpr char kData[] =
    "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
    " shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } data_filler { type: 'gaussian' } } }\n";

std::string InnerProduct(const std::string& name, const std::string& bottom,
                         const std::string& param) {
  return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
         name + "' " + param + " inner_product_param { num_output: 3 " +
         "weight_filler { type: 'gaussian' std: 0.7 } bias_filler { type: 'gaussian' } } }\n";
}

// Three layers in a chain, and a fourth one beside them that leads to no loss.
std::string Chain(const std::string& weights, const std::string& bias) {
  const std::string both = "param { " + weights + " } param { " + bias + " }";
  return kData + InnerProduct("a", "x", both) +
         "layer { name: 't' type: 'TanH' bottom: 'a' top: 'a' }" + InnerProduct("b", "a", both) +
         InnerProduct("c", "b", "param { " + weights + " }") + InnerProduct("e", "x", both) +
         "layer { name: 'l' type: 'EuclideanLoss' bottom: 'c' bottom: 'y' top: 'l' }"
         "layer { name: 's' type: 'Silence' bottom: 'e' }";
}

TEST_F(TorchNetTest, ASharedGradientIsTheSumOverTheLayersThatUseIt) {
  Subject shared(Options(Chain("name: 'w'", "name: 'v'")));
  Subject apart(Options(Chain("", "")));
  ASSERT_EQ(shared.parameters.size(), 2u);  // a with w and v; c with a bias of its own
  ASSERT_EQ(shared.parameters[0].size(), 12u);
  ASSERT_EQ(shared.parameters[1].size(), 3u);
  ASSERT_EQ(apart.parameters.size(), 4u);  // a, b, c, e
  const Floats own_bias(shared.parameters[1]);
  for (Floats& layer : apart.parameters) layer = shared.parameters[0];
  std::copy(own_bias.begin(), own_bias.end(), apart.parameters[2].begin() + 9);

  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    ASSERT_EQ(shared.Iterate(iteration), apart.Iterate(iteration));
    for (size_t i = 0; i < 12; ++i) {
      float sum = apart.gradients[0][i] + apart.gradients[1][i];
      if (i < 9) sum += apart.gradients[2][i];  // c's bias is its own
      EXPECT_NEAR(shared.gradients[0][i], sum, 1e-5 * (1 + std::abs(sum))) << i;
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(shared.gradients[1][i], apart.gradients[2][9 + i], 1e-5) << i;
    }
  }
}

// A job that has lost a node goes back, in whatever step the worker is.
TEST_F(TorchNetTest, ABackwardPassThatIsGivenUpLeavesNothing) {
  const std::string net = Chain("name: 'w'", "name: 'v'");
  Subject whole(Options(net));
  whole.Iterate(1);
  for (int last = 1; last < whole.engine->steps(); ++last) {
    Subject given_up(Options(net));
    given_up.Iterate(1, last);
    given_up.Iterate(1);
    EXPECT_EQ(given_up.gradients, whole.gradients) << "given up after step " << last;
  }
}

TEST_F(TorchNetTest, ASharedParameterIsReadyWithTheFirstLayerThatUsesIt) {
  const Subject subject(Options(Chain("name: 'w'", "name: 'v'")));
  const Engine& engine = *subject.engine;
  std::map<std::string, std::optional<int>> layers;
  for (int step = 0; step < engine.steps(); ++step) {
    layers[engine.step_name(step)] = engine.layer_of_step(step);
  }
  EXPECT_EQ(layers["a"], 0);
  EXPECT_EQ(layers["b"], std::nullopt);
  EXPECT_EQ(layers["c"], 1);
  EXPECT_EQ(layers["e"], std::nullopt);
}

TEST_F(TorchNetTest, AShareOfAnotherShape) {
  const std::string input =
      "layer { name: 'd' type: 'DummyData' top: 'x' top: 'z' dummy_data_param {"
      " shape { dim: 2 dim: 6 } shape { dim: 3 dim: 3 } data_filler { type: 'uniform' } } }\n";
  const auto layer = [](const std::string& name, const std::string& bottom, int outputs,
                        const std::string& param) {
    return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
           name + "' param { " + param +
           " } inner_product_param { bias_term: false num_output: " + std::to_string(outputs) +
           " weight_filler { type: 'gaussian' } }  }\n";
  };
  const auto net = [&](const std::string& param) {
    return input + layer("a", "x", 2, param) + layer("b", "z", 4, param) +
           "layer { name: 'la' type: 'Reduction' bottom: 'a' top: 'la' loss_weight: 2 }"
           "layer { name: 'lb' type: 'Reduction' bottom: 'b' top: 'lb' loss_weight: 0.5 }";
  };
  Subject shared(Options(net("name: 'w' share_mode: PERMISSIVE")));
  Subject apart(Options(net("")));
  ASSERT_EQ(shared.parameters.size(), 1u);
  for (Floats& values : apart.parameters) values = shared.parameters[0];
  ASSERT_EQ(shared.Iterate(0), apart.Iterate(0));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_FLOAT_EQ(shared.gradients[0][i], apart.gradients[0][i] + apart.gradients[1][i]);
  }
}

TEST_F(TorchNetTest, PropagateDownStopsTheGradient) {
  const auto net = [](const std::string& more) {
    return kData + InnerProduct("a", "x", "") + InnerProduct("b", "a", more) +
           "layer { name: 'l' type: 'EuclideanLoss' bottom: 'b' bottom: 'y' top: 'l' }";
  };
  Subject open(Options(net("propagate_down: true")));
  Subject stopped(Options(net("propagate_down: false")));
  open.Iterate(0);
  stopped.Iterate(0);
  EXPECT_EQ(open.gradients[1], stopped.gradients[1]);
  EXPECT_THAT(stopped.gradients[0], Each(0.0F));
  EXPECT_NE(open.gradients[0][0], 0.0F);
}

// By hand: w is 1, so the loss w^2 / 2 is 1/2 and falls by 1. `reader` is what reads the loss.
std::string LossOfOneWeight(const std::string& loss_weight, const std::string& reader) {
  return "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
         " shape { dim: 1 dim: 1 } data_filler { value: 1 } data_filler { value: 0 } } }"
         "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param {"
         " num_output: 1 bias_term: false weight_filler { value: 1 } } }"
         "layer { name: 'l' type: 'EuclideanLoss' bottom: 'ip' bottom: 'y' top: 'l' " +
         loss_weight + " } layer { name: 'r' bottom: 'l' " + reader + " }";
}

// A tenth of what it reads, as a loss.
constexpr char kTenth[] =
    "type: 'Power' top: 'r' loss_weight: 1 power_param { scale: 0.1 power: 1 }";

class LossReaderTest : public TorchNetTest {
 protected:
  // That an iteration of that net has this loss and gradient, a part of them in each replica.
  void Check(const std::string& loss_weight, const std::string& reader, float loss,
             float gradient) {
    TorchEngineOptions options = Options(LossOfOneWeight(loss_weight, reader));
    for (options.replicas = 1; options.replicas <= 2; ++options.replicas) {
      Subject subject(options);
      const auto replicas = static_cast<float>(options.replicas);
      EXPECT_FLOAT_EQ(subject.Iterate(0), loss / replicas) << reader << loss_weight << replicas;
      EXPECT_FLOAT_EQ(subject.gradients.at(0).at(0), gradient / replicas)
          << reader << loss_weight << replicas;
    }
  }
};

// Caffe splits no top for the weight that it gives a loss itself, so the reader's gradient takes
// the place of that weight. With a rate of 1 one iteration leaves w = 0.9.
TEST_F(LossReaderTest, AWeightThatALossIsWrittenWithoutIsNotInTheGradientOfItsReaders) {
  Check("", kTenth, 0.55F, 0.1F);
  Check("loss_weight: 1", kTenth, 0.55F, 1.1F);
}

// Caffe leaves such a loss out of its backward pass.
TEST_F(LossReaderTest, ALossWhoseReadersLeadToNoLossIsTrained) {
  Check("", "type: 'Silence'", 0.5F, 1);
  Check("", std::string("propagate_down: false ") + kTenth, 0.55F, 1);
}

TEST_F(TorchNetTest, DummyDataOfWorkersIsThatOfOneWithAllSamples) {
  const std::string net = kData + InnerProduct("a", "x", "") +
                          "layer { name: 'l' type: 'EuclideanLoss' bottom: 'a' bottom: 'y' }";
  TorchEngineOptions options = Options(net);
  options.batch_per_worker = 8;
  Subject whole(options);
  options.batch_per_worker = 4;
  options.workers = 2;
  for (const int64_t iteration : {0, 1}) {
    float loss = 0;
    for (options.rank = 0; options.rank < 2; ++options.rank) {
      Subject part(options);
      loss += part.Iterate(iteration) / 2;
    }
    EXPECT_NEAR(whole.Iterate(iteration), loss, 1e-5 * loss);
  }
  EXPECT_NE(whole.Iterate(0), whole.Iterate(1)) << "what is not constant is drawn anew";
}

// Who has joined a job of two reads on where its workers stopped, as all read their parts then.
TEST_F(TorchNetTest, DummyDataOfWhoHasJoinedIsNobodyElses) {
  const std::string net = kData + InnerProduct("a", "x", "") +
                          "layer { name: 'l' type: 'EuclideanLoss' bottom: 'a' bottom: 'y' }";
  TorchEngineOptions options = Options(net);
  options.workers = 2;
  std::set<float> losses;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    Subject worker(options);
    worker.engine->SetShare({.place = options.rank, .tenures = {{0, 2}, {4, 3}}});
    for (const int64_t iteration : {4, 5, 6}) losses.insert(worker.Iterate(iteration));
  }
  EXPECT_EQ(losses.size(), 9);
}

// Top `top` of a DummyData layer in an iteration.
Floats DummyValues(const std::string& parameter, int64_t iteration, int top) {
  caffe::NetParameter net;
  ParseText("layer { name: 'd' type: 'DummyData' " + parameter + " }", "net", net);
  const auto layer = MakeDataLayer(DescribeNet(net, caffe::TRAIN).layers[0], {});
  layer->Load(iteration, iteration + 1);
  const at::Tensor values = layer->Forward({}, {}, {})[top].contiguous();
  return {values.data_ptr<float>(), values.data_ptr<float>() + values.numel()};
}

// Though it is filled sample by sample.
TEST_F(TorchNetTest, DummyDataHaveTheFanAndTheSparsityOfTheWholeBlob) {
  const auto values = [](const std::string& filler) {
    return DummyValues(
        "top: 'x' dummy_data_param { shape { dim: 100 dim: 20 } data_filler { " + filler + " } }",
        0, 0);
  };
  const Floats sparse = values("type: 'gaussian' sparse: 10");
  const auto kept = std::count_if(sparse.begin(), sparse.end(), [](float v) { return v != 0; });
  EXPECT_NEAR(static_cast<double>(kept), 200, 5 * std::sqrt(2000 * 0.1 * 0.9));
  // An input would feed 100 outputs. Of 2,000 uniform numbers one is near the end.
  const Floats fan = values("type: 'xavier' variance_norm: FAN_OUT");
  const float limit = std::sqrt(3.0F / 100);
  EXPECT_LE(*std::ranges::max_element(fan), limit);
  EXPECT_GT(*std::ranges::max_element(fan), 0.9F * limit);
  const Floats ball = values("type: 'positive_unitball'");
  for (size_t i = 0; i < 2000; i += 20) {
    // Each of the 20 values is rounded to a float, by half a unit in the last place.
    EXPECT_NEAR(std::accumulate(ball.begin() + i, ball.begin() + i + 20, 0.0), 1,
                std::numeric_limits<float>::epsilon());
  }
}

TEST_F(TorchNetTest, ATopOfDummyDataWithMoreSamplesThanTheFirstRepeatsNone) {
  const std::string parameter =
      "top: 'x' top: 'y' dummy_data_param { shape { dim: 2 } shape { dim: 8 }"
      " data_filler { type: 'uniform' } }";
  std::set<float> seen;
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    for (const float value : DummyValues(parameter, iteration, 1)) seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 24U);
}

TEST_F(TorchNetTest, AProgramFeedsInputAndMemoryData) {
  const std::string net =
      "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 } } }"
      "layer { name: 'm' type: 'MemoryData' top: 'image' top: 'label'"
      " memory_data_param { batch_size: 2 channels: 2 height: 1 width: 2 } }"
      "layer { name: 'r' type: 'Reduction' bottom: 'image' top: 'r' loss_weight: 1 }"
      "layer { name: 's' type: 'Reduction' bottom: 'label' top: 's' loss_weight: 100 }"
      "layer { name: 't' type: 'Reduction' bottom: 'x' top: 't' loss_weight: 10000 }";
  TorchEngineOptions options = Options(net);
  EXPECT_THAT(MessageOf<ConfigError>([&] { MakeTorchEngine(options); }),
              HasSubstr("layer \"in\" (Input): reads nothing by itself, a program has to feed it"));
  options.feed = [](const LayerDescription& layer, int64_t iteration,
                    std::span<const std::span<float>> tops) {
    EXPECT_EQ(tops.size(), layer.tops.size());
    for (const std::span<float> top : tops) {
      std::fill(top.begin(), top.end(), static_cast<float>(iteration));
    }
  };
  Subject subject(options);
  EXPECT_EQ(subject.Iterate(1), 8 + 200 + 20000);
  EXPECT_EQ(subject.Iterate(2), 16 + 400 + 40000);
}

// Layers that read the numbers from 0 on: a database as labels, HDF5 files of so many rows each.
class ReadTogetherTest : public TorchNetTest {
 protected:
  void SetUp() override {
    if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  }

  std::string Database(int records, const std::string& top) {
    const std::string path = NewPath();
    DatasetWriter writer(path);
    for (int i = 0; i < records; ++i) {
      caffe::Datum datum;
      datum.set_channels(1);
      datum.set_height(1);
      datum.set_width(1);
      datum.set_data("x");
      datum.set_label(i);
      writer.Append(datum);
    }
    writer.Finish();
    return "layer { name: 'database' type: 'Data' top: 'x' top: '" + top +
           "' data_param { backend: LMDB batch_size: 4 source: '" + path + "' } }";
  }

  std::string Files(const std::vector<int>& rows, const std::string& top) {
    std::string list;
    float next = 0;
    for (const int count : rows) {
      Floats values(static_cast<size_t>(count));
      for (float& value : values) value = next++;
      const std::string path = NewPath();
      Hdf5Writer writer(path);
      writer.AddFloats(top, {count}, values);
      writer.Write();
      list += path + "\n";
    }
    return "layer { name: '" + top + "' type: 'HDF5Data' top: '" + top +
           "' hdf5_data_param { batch_size: 4 source: '" + Listed(list) + "' } }";
  }

  // A file with the paths of others.
  std::string Listed(const std::string& paths) {
    const std::string path = NewPath();
    std::ofstream(path) << paths;
    return path;
  }

  std::string NewPath() { return directory_.Path(std::to_string(made_++)); }

  const std::string loss_ = "layer { name: 'l' type: 'EuclideanLoss' bottom: 'a' bottom: 'b' }";
  int made_ = 0;
};

TEST_F(ReadTogetherTest, ShuffledLayersReadTheSameSamples) {
  for (const std::string& net :
       {Database(30, "a") + Files({30}, "b"), Files({7, 23}, "a") + Files({7, 23}, "b")}) {
    Subject subject(Options(net + loss_));
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(subject.Iterate(i), 0) << net;
  }
}

TEST_F(ReadTogetherTest, WhatShufflingWouldTearApartIsRefused) {
  for (const auto& [a, b] : {std::pair(Database(30, "a"), Files({7, 23}, "b")),
                             std::pair(Files({7, 23}, "a"), Files({23, 7}, "b"))}) {
    TorchEngineOptions options = Options(a + b + loss_);
    EXPECT_THAT(MessageOf<ConfigError>([&] { MakeTorchEngine(options); }),
                AllOf(HasSubstr("and \"b\" read 30 records each, but HDF5 files are shuffled one "
                                "by one, and theirs are not cut alike"),
                      HasSubstr("write shuffle: false in the job's training")));
    options.shuffle = false;
    Subject subject(options);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(subject.Iterate(i), 0);
  }
  // As of two domains.
  EXPECT_NO_THROW(MakeTorchEngine(Options(Database(31, "a") + Files({7, 23}, "b") + loss_)));
}

// Five words a row, each of which is a sample of the net's.
TEST_F(ReadTogetherTest, ABadLabelIsThatOfTheRowBeforeItWasReshaped) {
  const std::string words = NewPath();
  Floats labels(20);
  labels[19] = 8;
  Hdf5Writer writer(words);
  writer.AddFloats("label", {4, 5}, labels);
  writer.AddFloats("data", {4, 5, 3}, Floats(60));
  writer.Write();
  TorchEngineOptions options = Options(
      "layer { name: 'words' type: 'HDF5Data' top: 'data' top: 'label' hdf5_data_param {"
      " batch_size: 4 source: '" +
      Listed(words) +
      "' } }"
      "layer { name: 'x' type: 'Reshape' bottom: 'data' top: 'x'"
      " reshape_param { shape { dim: 20 dim: 3 } } }"
      "layer { name: 'y' type: 'Reshape' bottom: 'label' top: 'y'"
      " reshape_param { shape { dim: 20 } } }"
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'"
      " inner_product_param { num_output: 8 } }"
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'y' top: 'loss' }");
  options.shuffle = false;
  Subject subject(options);
  EXPECT_THAT(MessageOf<DataError>([&] { subject.Iterate(0); }),
              HasSubstr("the label of row 3 of " + words + " is 8"));
}

// Whose records they are is not known.
TEST_F(ReadTogetherTest, ABadLabelOfLayersThatReadIndependentlyIsThatOfASample) {
  const std::string net =
      Database(30, "a") + Files({4}, "b") +
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip'"
      " inner_product_param { num_output: 3 } }"
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'b' top: 'loss' }"
      "layer { name: 's' type: 'Silence' bottom: 'a' }";
  TorchEngineOptions options = Options(net);
  options.shuffle = false;
  Subject subject(options);
  EXPECT_THAT(MessageOf<DataError>([&] { subject.Iterate(0); }),
              HasSubstr("the label of sample 3 of the batch is 3"));
}

// What ScoreNet tells of a net of such layers, with the values that a file has for `b`.
std::string ToldOfScore(const TemporaryDirectory& directory, const std::string& layers) {
  SolverNet net{.net = {}, .phase = caffe::TEST, .state = {}, .locate = {}};
  const std::string loss = "layer { name: 'l' type: 'EuclideanLoss' bottom: 'b' bottom: 'y' }";
  ParseText(kData + layers + loss, "net", net.net);
  caffe::NetParameter model;
  ParseText(
      "layer { name: 'b' blobs { shape { dim: 3 dim: 3 } data: [1, 2, 3, 4, 5, 6, 7, 8, 9] }"
      " blobs { shape { dim: 3 } data: [1, 2, 3] } }",
      "model", model);
  const std::string path = directory.Path("b.caffemodel");
  WriteBinaryFile(path, model);
  std::string told;
  ScoreNet(net, {path}, 1, 1, [&told](const std::string& news) { told += news + "\n"; });
  return told;
}

TEST_F(TorchNetTest, WhatAnOwnerSharesMayComeFromAnotherLayersValues) {
  const std::string share = "param { name: 'w' }";
  const std::string both = share + " param { name: 'v' }";
  EXPECT_EQ(ToldOfScore(directory_, InnerProduct("a", "x", both) + InnerProduct("b", "a", both)),
            directory_.Path("b.caffemodel") + ": copied a, b\n");
  EXPECT_THAT(
      ToldOfScore(directory_, InnerProduct("a", "x", share) + InnerProduct("b", "a", share)),
      HasSubstr("warning: no file has values for a, so"))
      << "a's bias is its own";
}

TEST_F(TorchNetTest, LayersThatTestsShareInAnotherWayAreRefused) {
  const std::string net = kData + InnerProduct("a", "x", "param { name: 'w' }") +
                          InnerProduct("b", "a", "param { name: 'w' } include { phase: TRAIN }") +
                          InnerProduct("b", "a", "include { phase: TEST }") +
                          "layer { name: 'l' type: 'EuclideanLoss' bottom: 'b' bottom: 'y' }";
  EXPECT_THAT(MessageOf<ConfigError>(
                  [&] { MakeTorchEngine(Options(net, "test_interval: 1 test_iter: 1")); }),
              HasSubstr("layer \"b\" has parameters of other shapes, or shared in another way"));
}

}  // namespace
}  // namespace poseidon
