// Layers that the user has written in Python, in nets of this engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "caffe_adapter/data/data_share.h"
#include "core/error.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/worker/torch_engine_testing.h"
#include "worker/engine/kept_statistics.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A loss that takes its weight for 1, and one that does not; one that learns; those that pass on.
constexpr char kLayers[] = R"(
import caffe
import numpy as np

class Euclidean(caffe.Layer):
    def setup(self, bottom, top):
        assert len(bottom) == 2 and len(top) == 1
    def reshape(self, bottom, top):
        assert bottom[0].count == bottom[1].count
        self.difference = np.zeros_like(bottom[0].data)
        top[0].reshape(1)
    def forward(self, bottom, top):
        self.difference[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference ** 2) / bottom[0].num / 2
    def backward(self, top, propagate_down, bottom):
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = sign * self.difference / bottom[i].num

class WeighedEuclidean(Euclidean):
    def backward(self, top, propagate_down, bottom):
        super().backward(top, propagate_down, bottom)
        for i in range(2):
            bottom[i].diff[...] *= top[0].diff[0]

class Identity(caffe.Layer):
    def setup(self, bottom, top):
        self.factor = float(self.param_str or 1)
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        top[0].data[...] = self.factor * bottom[0].data
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.factor * top[0].diff

class ShiftedSquare(Identity):
    def setup(self, bottom, top):
        self.blobs.add_blob(3)
        self.blobs[0].data[...] = [1, 2, 3]
    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data ** 2 + self.blobs[0].data
    def backward(self, top, propagate_down, bottom):
        assert propagate_down == [True]
        bottom[0].diff[...] = 2 * bottom[0].data * top[0].diff
        self.blobs[0].diff[...] = top[0].diff.sum(axis=0)

class Number(caffe.Layer):
    def setup(self, bottom, top):
        pass
    def reshape(self, bottom, top):
        top[0].reshape()
)";

constexpr char kData[] =
    "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
    " shape { dim: 4 dim: 5 } shape { dim: 4 dim: 5 } data_filler { type: 'gaussian' } } }\n";

std::string InnerProduct(const std::string& bottom, const std::string& top) {
  return "layer { name: '" + top + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" + top +
         "' inner_product_param { num_output: 3 weight_filler { type: 'gaussian' std: 0.7 }"
         " bias_filler { type: 'gaussian' } } }\n";
}

class PythonLayerTest : public ::testing::Test {
 protected:
  // Python keeps a module by its name, so each test has one of its own.
  PythonLayerTest()
      : module_(std::string("layers_of_") +
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    WriteLayers("");
  }

  // After those above.
  void WriteLayers(const std::string& more) const {
    directory_.Write(module_ + ".py", kLayers + more);
  }

  // A class Number that computes one, in forward.
  void WriteNumber(const std::string& forward) const {
    WriteLayers("    def forward(self, bottom, top):\n        " + forward + "\n");
  }

  std::string Python(const std::string& layer, const std::string& blobs,
                     const std::string& param_str = "") const {
    return "layer { name: 'it' type: 'Python' " + blobs + " python_param { module: '" + module_ +
           "' layer: '" + layer + "' param_str: '" + param_str + "' } }\n";
  }

  TorchEngineOptions Options(const std::string& net, const std::string& solver = "") const {
    directory_.Write("net.prototxt", net);
    TorchEngineOptions options;
    options.solver = LoadSolver(directory_.Write(
        "solver.prototxt", "net: '" + directory_.Path("net.prototxt") +
                               "' base_lr: 1 lr_policy: 'fixed' max_iter: 1 " + solver));
    return options;
  }

  // What is said of a net that can't be made.
  std::string ErrorOf(const std::string& net) const {
    return MessageOf<ConfigError>([&] { MakeTorchEngine(Options(net)); });
  }

  std::string module_;
  TemporaryDirectory directory_;
};

// Sums of as many products as here are apart by roundings of each.
void ExpectClose(float one, float other) {
  const float bound = 64 * std::numeric_limits<float>::epsilon();
  EXPECT_NEAR(one, other, bound * (1 + std::abs(other)));
}

// One iteration's loss and gradients of two nets that have the same parameters.
void ExpectSame(const TorchEngineOptions& one, const TorchEngineOptions& other) {
  Trainee first(one);
  Trainee second(other);
  ASSERT_EQ(first.parameters, second.parameters);
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    ExpectClose(first.Iterate(iteration), second.Iterate(iteration));
    for (size_t layer = 0; layer < first.gradients.size(); ++layer) {
      for (size_t i = 0; i < first.gradients[layer].size(); ++i) {
        ExpectClose(first.gradients[layer][i], second.gradients[layer][i]);
      }
    }
  }
}

TEST_F(PythonLayerTest, ALossWrittenInPythonIsTheBuiltInOne) {
  const std::string below = kData + InnerProduct("x", "a") + InnerProduct("y", "b");
  for (const std::string weight : {"1", "0.375"}) {
    const std::string blobs = "bottom: 'a' bottom: 'b' top: 'loss' loss_weight: " + weight;
    const auto built_in =
        Options(below + "layer { name: 'it' type: 'EuclideanLoss' " + blobs + "}");
    for (const std::string layer : {"Euclidean", "WeighedEuclidean"}) {
      SCOPED_TRACE(layer + " of weight " + weight);
      ExpectSame(Options(below + Python(layer, blobs)), built_in);
    }
  }
}

// In float16 the engine multiplies the losses, so that small gradients do not vanish.
TEST_F(PythonLayerTest, ALossIsScaledWhereGradientsAre) {
  const std::string below = kData + InnerProduct("x", "a");
  const std::string blobs = "bottom: 'a' bottom: 'b' top: 'loss'";
  const std::string b = InnerProduct("y", "b");
  TorchEngineOptions built_in =
      Options(below + b + "layer { name: 'it' type: 'EuclideanLoss' " + blobs + "}");
  TorchEngineOptions own = Options(below + b + Python("Euclidean", blobs + " loss_weight: 1"));
  for (TorchEngineOptions* options : {&built_in, &own}) {
    options->precision = Precision::kFloat16;
    options->loss_scaling.initial_scale = 256;  // no gradient overflows
  }
  Trainee first(own);
  Trainee second(built_in);
  first.Iterate(0);
  second.Iterate(0);
  EXPECT_THAT(second.gradients[0], Contains(Gt(0.1F)));
  const float half_epsilon = 1.0F / 1024;
  for (size_t i = 0; i < first.gradients[0].size(); ++i) {
    const float expected = second.gradients[0][i];
    EXPECT_NEAR(first.gradients[0][i], expected, 4 * half_epsilon * (1 + std::abs(expected)));
  }
}

// Images lie with their channels innermost in the engine, and not in Python.
TEST_F(PythonLayerTest, ALayerSeesImagesAsCaffeHasThem) {
  const auto net = [&](const std::string& between, const std::string& bottom) {
    return Options(
        "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
        " shape { dim: 2 dim: 3 dim: 5 dim: 4 } shape { dim: 2 dim: 3 }"
        " data_filler { type: 'gaussian' } } }\n"
        "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param {"
        " num_output: 4 kernel_size: 2 weight_filler { type: 'gaussian' } } }\n" +
        between + InnerProduct(bottom, "a") +
        "layer { name: 'l' type: 'EuclideanLoss' bottom: 'a' bottom: 'y' }\n");
  };
  ExpectSame(
      net(Python("Identity", "bottom: 'c' top: 'p'", "2"), "p"),
      net("layer { name: 'p' type: 'Power' bottom: 'c' top: 'p' power_param { scale: 2 } }", "p"));
}

// The second takes for granted that bottom and top are one.
TEST_F(PythonLayerTest, ALayerMayWorkInPlace) {
  WriteLayers(R"(    pass
class Doubling(Identity):
    def forward(self, bottom, top):
        bottom[0].data[...] *= 2
    def backward(self, top, propagate_down, bottom):
        top[0].diff[...] *= 2
)");
  const auto net = [&](const std::string& between) {
    return Options(kData + InnerProduct("x", "a") + InnerProduct("y", "b") + between +
                   "layer { name: 'l' type: 'EuclideanLoss' bottom: 'a' bottom: 'b' }\n");
  };
  const TorchEngineOptions built_in =
      net("layer { name: 'it' type: 'Power' bottom: 'a' top: 'a' power_param { scale: 2 } }");
  ExpectSame(net(Python("Identity", "bottom: 'a' top: 'a'", "2")), built_in);
  ExpectSame(net(Python("Doubling", "bottom: 'a' top: 'a'")), built_in);
}

TEST_F(PythonLayerTest, GradientsAreThoseOfFiniteDifferences) {
  Trainee trainee(Options(kData + InnerProduct("x", "a") + InnerProduct("y", "b") +
                          Python("ShiftedSquare", "bottom: 'a' top: 'p'") +
                          "layer { name: 'l' type: 'EuclideanLoss' bottom: 'p' bottom: 'b' }"));
  ASSERT_EQ(trainee.engine().model().layers_size(), 3);
  EXPECT_EQ(trainee.engine().model().layers(2).name(), "it");
  EXPECT_THAT(trainee.parameters[2], ElementsAre(1, 2, 3));  // as setup says
  trainee.Iterate(0);
  const std::vector<Floats> gradients = trainee.gradients;
  const float step = 1.0F / 128;
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    for (size_t i = 0; i < gradients[layer].size(); ++i) {
      float& value = trainee.parameters[layer][i];
      const float before = std::exchange(value, value + step);
      const float above = trainee.Iterate(0);
      value = before - step;
      const float difference = (above - trainee.Iterate(0)) / (2 * step);
      value = before;
      EXPECT_NEAR(gradients[layer][i], difference, 0.01 * (1 + std::abs(difference)))
          << layer << " " << i;
    }
  }
}

TEST_F(PythonLayerTest, ALayerWithoutBottomsIsADataLayerThatKnowsItsPlace) {
  WriteNumber("top[0].data[()] = self.iteration + 10 * self.rank + 100 * self.workers");
  TorchEngineOptions options = Options(Python("Number", "top: 'n' loss_weight: 1"));
  options.rank = 2;
  options.workers = 3;
  Trainee trainee(options);
  EXPECT_EQ(trainee.Iterate(0), 320);
  EXPECT_EQ(trainee.Iterate(7), 327);
  trainee.engine().SetShare({.place = 1, .tenures = {{0, 3}, {8, 5}}});
  EXPECT_EQ(trainee.Iterate(8), 518);
}

TEST_F(PythonLayerTest, ALayerWithBottomsKnowsItsPlaceToo) {
  WriteNumber("top[0].data[()] = self.iteration + 10 * self.rank + 100 * self.workers");
  TorchEngineOptions options =
      Options(kData + Python("Number", "bottom: 'x' bottom: 'y' top: 'n' loss_weight: 1"));
  options.rank = 2;
  options.workers = 3;
  Trainee trainee(options);
  EXPECT_EQ(trainee.Iterate(4), 324);
  trainee.engine().SetShare({.place = 1, .tenures = {{0, 5}}});
  EXPECT_EQ(trainee.Iterate(5), 515);
}

TEST_F(PythonLayerTest, APassThatIsLookedAtAgainIsNotComputedAgainByADataLayer) {
  WriteNumber("self.passes = getattr(self, 'passes', 0) + 1; top[0].data[()] = self.passes");
  Trainee trainee(Options(Python("Number", "top: 'n' loss_weight: 1")));
  EXPECT_EQ(trainee.Iterate(0), 1);
  EXPECT_EQ(trainee.engine().FirstNotFinite(), "");
  EXPECT_EQ(trainee.Iterate(1), 2);
}

TEST_F(PythonLayerTest, TheTestNetsLayersSeeTheirPhase) {
  WriteNumber("top[0].data[()] = 5 + (self.phase == caffe.TEST)");
  Trainee trainee(
      Options(Python("Number", "top: 'n' loss_weight: 1"), "test_iter: 2 test_interval: 1"));
  EXPECT_EQ(trainee.Iterate(0), 5);
  EXPECT_EQ(trainee.engine().Test().loss, 6);
}

TEST_F(PythonLayerTest, BlobsLieInMemoryWithoutCopies) {
  WriteNumber(
      "top[0].data[()] = np.shares_memory(bottom[0].data, Maker.made)\n"
      "class Maker(Identity):\n"
      "    def forward(self, bottom, top):\n"
      "        top[0].data[...] = 3\n"
      "        Maker.made = top[0].data");
  Trainee trainee(Options(kData + Python("Maker", "bottom: 'x' top: 'p'") +
                          Python("Number", "bottom: 'p' top: 'n' loss_weight: 1")));
  EXPECT_EQ(trainee.Iterate(0), 1);
  EXPECT_EQ(trainee.Iterate(1), 1);
}

TEST_F(PythonLayerTest, AnArrayThatALayerKeepsStaysValid) {
  WriteNumber(
      "if self.iteration == 0: self.kept = bottom[0].data\n"
      "        top[0].data[()] = self.kept.sum()");
  Trainee trainee(Options(kData + InnerProduct("x", "a") +
                          Python("Number",
                                 "bottom: 'a' top: 'n' loss_weight: 1 "
                                 "propagate_down: false")));
  const float before = trainee.Iterate(0);
  for (float& value : trainee.parameters[0]) value = 1000;
  for (int64_t iteration = 1; iteration < 4; ++iteration) {
    EXPECT_EQ(trainee.Iterate(iteration), before);
  }
}

TEST_F(PythonLayerTest, ATopsValuesStayUntilTheyAreChanged) {
  WriteNumber("top[0].data[()] += 1");
  Trainee trainee(Options(Python("Number", "top: 'n' loss_weight: 1")));
  EXPECT_EQ(trainee.Iterate(0), 1);
  EXPECT_EQ(trainee.Iterate(1), 2);
}

TEST_F(PythonLayerTest, WhatALayerThrowsNamesTheLayerAndTheLine) {
  WriteNumber("self.deeper(bottom)\n    def deeper(self, bottom):\n        raise KeyError('oh')");
  Trainee trainee(Options(kData + Python("Number", "bottom: 'x' top: 'n' loss_weight: 1")));
  EXPECT_THAT(
      MessageOf<ConfigError>([&] { trainee.Iterate(0); }),
      AllOf(StartsWith("Traceback (most recent call last):\n  File \"" +
                       directory_.Path(module_ + ".py")),
            HasSubstr("in deeper\n    raise KeyError('oh')\nKeyError: 'oh'\n" +
                      directory_.Path("net.prototxt:2:1")),
            EndsWith(": layer \"it\" (Python): forward of " + module_ + ".Number: KeyError: 'oh'"),
            Not(HasSubstr("<caffe>"))));
}

TEST_F(PythonLayerTest, ALayerThatThrowsInSetupIsRefused) {
  EXPECT_THAT(ErrorOf(kData + Python("Identity", "bottom: 'x' top: 'p' loss_weight: 1", "many")),
              AllOf(HasSubstr("layer \"it\" (Python): setup of " + module_ +
                              ".Identity: ValueError: could not convert string to float: 'many'"),
                    HasSubstr("in setup")));
}

TEST_F(PythonLayerTest, ALayerThatExitsDoesNotEndTheProgram) {
  WriteNumber("raise SystemExit(3)");
  Trainee trainee(Options(Python("Number", "top: 'n' loss_weight: 1")));
  EXPECT_THAT(MessageOf<ConfigError>([&] { trainee.Iterate(0); }), HasSubstr("SystemExit: 3"));
}

TEST_F(PythonLayerTest, AShapeThatChangesIsRefused) {
  WriteNumber(
      "top[0].data[()] = 1\n"
      "    def reshape(self, bottom, top):\n"
      "        top[0].reshape(*[1, 2, 2][:self.iteration])");
  Trainee trainee(Options(Python("Number", "top: 'n' loss_weight: 1")));
  EXPECT_EQ(trainee.Iterate(0), 1);
  EXPECT_THAT(MessageOf<ConfigError>([&] { trainee.Iterate(2); }),
              AllOf(HasSubstr("layer \"it\" (Python): forward of"),
                    HasSubstr("top \"n\" is scalar and would become 1 x 2; the sizes of a net are "
                              "fixed")));
}

TEST_F(PythonLayerTest, AShapeThatIsAnotherInEachSetupIsRefused) {
  WriteNumber(
      "pass\n"
      "    made = 0\n"
      "    def reshape(self, bottom, top):\n"
      "        Number.made += 1\n"
      "        top[0].reshape(Number.made, 2)");
  EXPECT_THAT(ErrorOf(Python("Number", "top: 'n' loss_weight: 1")),
              HasSubstr("top \"n\" is 2 x 2, but was 1 x 2 when the net was described"));
}

TEST_F(PythonLayerTest, AShapeThatDoesNotFitIsRefused) {
  WriteNumber(
      "pass\n"
      "    def reshape(self, bottom, top):\n"
      "        top[0].reshape(0, 2)");
  EXPECT_THAT(ErrorOf(Python("Number", "top: 'n' loss_weight: 1")),
              HasSubstr("top \"n\" would be 0 x 2; expected extents of at least 1"));
  EXPECT_THAT(
      ErrorOf(kData + Python("Euclidean", "bottom: 'x' bottom: 'it' top: 'l' loss_weight: 1")),
      HasSubstr("bottom \"it\" is no top of a layer before it"));
}

TEST_F(PythonLayerTest, WhatBelongsToOtherLayersIsNotWrittenTo) {
  WriteNumber("bottom[0].data[...] = 0");
  Trainee trainee(Options(kData + Python("Number", "bottom: 'x' top: 'n' loss_weight: 1")));
  EXPECT_THAT(MessageOf<ConfigError>([&] { trainee.Iterate(0); }),
              HasSubstr("ValueError: assignment destination is read-only"));
}

// One that counts passes in a blob.
constexpr char kCounter[] = R"(    def forward(self, bottom, top):
        self.blobs[0].data[...] += 1
        top[0].data[()] = self.blobs[0].data[0]
class Counter(Number):
    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 40
)";
constexpr char kCounts[] = "top: 'n' loss_weight: 1 param { lr_mult: 0 decay_mult: 0 }";

TEST_F(PythonLayerTest, BlobsWithoutLearningAreTheLayersToChange) {
  WriteLayers(kCounter);
  Trainee counting(Options(Python("Counter", kCounts)));
  EXPECT_EQ(counting.Iterate(0), 41);
  EXPECT_EQ(counting.Iterate(1), 42);
  WriteLayers("");
  EXPECT_THAT(ErrorOf(Python("Counter", "top: 'n' loss_weight: 1")),
              HasSubstr("class Counter has no method backward, but it or a bottom learns"));
}

TEST_F(PythonLayerTest, BlobsThatALayerChangesGoBackWithItsWorker) {
  WriteLayers(kCounter);
  Trainee counting(Options(Python("Counter", kCounts)));
  KeptStatistics kept(counting.engine().Statistics(), nullptr);
  EXPECT_EQ(counting.Iterate(0), 41);
  kept.Keep(1);
  EXPECT_EQ(counting.Iterate(1), 42);
  kept.GoBack(1);
  EXPECT_EQ(counting.Iterate(1), 42);
}

// The job has them with the learned ones, from where they would be overwritten.
TEST_F(PythonLayerTest, BlobsOfALayerThatLearnsAreNotItsToChange) {
  WriteLayers(R"(    pass
class Normalizing(ShiftedSquare):
    def setup(self, bottom, top):
        super().setup(bottom, top)
        self.blobs.add_blob(1)
    def forward(self, bottom, top):
        super().forward(bottom, top)
        self.blobs[1].data[...] = bottom[0].data.mean()
)");
  Trainee trainee(Options(
      kData + InnerProduct("x", "a") + InnerProduct("y", "b") +
      Python("Normalizing", "bottom: 'a' top: 'p' param { lr_mult: 1 } param { lr_mult: 0 }") +
      "layer { name: 'l' type: 'EuclideanLoss' bottom: 'p' bottom: 'b' }"));
  EXPECT_EQ(trainee.engine().Statistics().size(), 0U);
  EXPECT_THAT(MessageOf<ConfigError>([&] { trainee.Iterate(0); }),
              HasSubstr("ValueError: assignment destination is read-only"));
}

TEST_F(PythonLayerTest, ALayerMayLearnAndMakeNothing) {
  WriteLayers(R"(    pass
class Sink(Identity):
    def setup(self, bottom, top):
        self.blobs.add_blob(1)
    def reshape(self, bottom, top):
        pass
    def forward(self, bottom, top):
        pass
)");
  Trainee trainee(Options(kData + Python("Sink", "bottom: 'x'") +
                          "layer { name: 'l' type: 'EuclideanLoss' bottom: 'x' bottom: 'y' }"));
  EXPECT_EQ(trainee.parameters.size(), 1U);
  EXPECT_GT(trainee.Iterate(0), 0);
}

TEST_F(PythonLayerTest, WhatIsNotThereIsSaid) {
  EXPECT_THAT(ErrorOf(kData + Python("Nothing", "bottom: 'x' top: 'p' loss_weight: 1")),
              HasSubstr("module \"" + module_ + "\" (" + directory_.Path(module_ + ".py") +
                        ") has no class \"Nothing\" that is derived from caffe.Layer"));
  EXPECT_THAT(ErrorOf("layer { name: 'it' type: 'Python' top: 'p' loss_weight: 1 "
                      "python_param { module: 'nowhere' layer: 'Nothing' } }"),
              AllOf(HasSubstr("net.prototxt:1:"), HasSubstr("there is no module \"nowhere\""),
                    HasSubstr(directory_.path()), HasSubstr("PYTHONPATH")));
  EXPECT_THAT(ErrorOf("layer { name: 'it' type: 'Python' top: 'p' loss_weight: 1 }"),
              HasSubstr("module is missing"));
  EXPECT_THAT(ErrorOf("layer { name: 'it' type: 'Python' top: 'p' loss_weight: 1 "
                      "python_param { module: 'nowhere' } }"),
              HasSubstr("layer is missing"));
  EXPECT_THAT(ErrorOf("layer { name: 'it' type: 'Python' top: 'p' loss_weight: 1 python_param { "
                      "module: 'nowhere' "
                      "layer: 'Nothing' share_in_parallel: true } }"),
              HasSubstr("workers are processes, which can't share a layer"));
  EXPECT_THAT(ErrorOf(kData + Python("Euclidean", "bottom: 'x' bottom: 'y' top: 'l'")),
              HasSubstr("no layer in TRAIN has a loss to train on; a Python layer is a loss only "
                        "with a loss_weight"));
}

TEST_F(PythonLayerTest, ABatchThatALayerDoesNotMakeIsRefused) {
  WriteNumber(
      "pass\n"
      "    def reshape(self, bottom, top):\n"
      "        top[0].reshape(4, 2)");
  TorchEngineOptions options = Options(Python("Number", "top: 'n' loss_weight: 1"));
  options.batch_per_worker = 4;
  EXPECT_EQ(MakeTorchEngine(options)->batch(), 4);
  options.batch_per_worker = 3;
  EXPECT_THAT(MessageOf<ConfigError>([&] { MakeTorchEngine(options); }),
              HasSubstr("top \"n\" is 4 x 2, but the batch is to be 3"));
}

}  // namespace
}  // namespace poseidon
