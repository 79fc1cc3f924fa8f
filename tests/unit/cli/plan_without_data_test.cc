// Plans of nets whose data are not there: every net of configs/models, and nets of a user's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "caffe_adapter/convert/dataset_writer.h"
#include "cli/planning/plan.h"
#include "cli/planning/simulate.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PlanOptions EightMachines(const std::string& net) {
  PlanOptions options;
  options.source.net = net;
  options.source.batch = 32;
  options.job.mutable_cluster()->set_workers(8);
  options.job.mutable_cluster()->set_servers(8);
  options.job.mutable_cluster()->mutable_network()->set_bandwidth("10Gbps");
  return options;
}

std::vector<std::string> ShippedModels() {
  std::vector<std::string> models;
  for (const fs::directory_entry& entry : fs::directory_iterator("configs/models")) {
    if (entry.is_directory()) models.push_back(entry.path().filename().string());
  }
  return models;
}

// What models_test.cc describes the published nets with: images as they are stored.
Shape StoredShape(const std::string& model) {
  if (model == "lenet") return {1, 28, 28};
  if (model.starts_with("cifar10")) return {3, 32, 32};
  return {3, 320, 320};
}

// A test that works in a directory without any data.
class PlanWithoutDataTest : public ::testing::Test {
 protected:
  PlanWithoutDataTest() { fs::current_path(directory_.path()); }
  ~PlanWithoutDataTest() override { fs::current_path(repository_); }

  TemporaryDirectory directory_;
  const fs::path repository_ = fs::current_path();
};

TEST_F(PlanWithoutDataTest, EveryShippedNetIsPlannedAsWithItsData) {
  fs::current_path(repository_);
  const std::vector<std::string> models = ShippedModels();
  fs::current_path(directory_.path());
  ASSERT_GE(models.size(), 12U);
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const fs::path folder = repository_ / "configs/models" / model;
    PlanOptions options = EightMachines(folder / "net.prototxt");
    const PlannedModel planned = PlanModel(options);
    EXPECT_EQ(planned.model.batch(), 32);
    PlanOptions given = options;
    given.source.record_shape = StoredShape(model);
    EXPECT_EQ(planned.model.SerializeAsString(), PlanModel(given).model.SerializeAsString());
    // The solver's path to its net starts at the repository's root.
    options.source.net.clear();
    options.source.solver = folder / "solver.prototxt";
    EXPECT_EQ(PlanModel(options).model.layers_size(), planned.model.layers_size());
  }
}

// A net of a user's own, with this as its first layer.
std::string NetReading(const std::string& layer) {
  return "layer { name: 'images' top: 'data' top: 'label' " + layer + R"( }
    layer {
      name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
      inner_product_param { num_output: 10 }
    }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
  )";
}

std::string NetReadingLmdb(const std::string& transform) {
  return NetReading("type: 'Data' transform_param { " + transform +
                    " } data_param { source: 'images_lmdb' batch_size: 8 backend: LMDB }");
}

class UsersNetTest : public PlanWithoutDataTest {
 protected:
  PlannedModel Plan(const std::string& net) {
    return PlanModel(EightMachines(directory_.Write("net.prototxt", net)));
  }
  // The line about samples of a plan's table.
  std::string LineOf(const PlannedModel& planned) {
    const std::string table = PlanTable(planned);
    const size_t begin = table.find("samples of");
    return begin == std::string::npos ? "" : table.substr(begin, table.find('\n', begin) - begin);
  }
  std::string Refusal(const std::string& net) {
    return MessageOf<DataError>([&] { Plan(net); });
  }
  // A database of one image.
  void WriteDatabase(int channels, int height, int width) {
    DatasetWriter writer(directory_.Path("images_lmdb"));
    caffe::Datum datum;
    datum.set_channels(channels);
    datum.set_height(height);
    datum.set_width(width);
    datum.set_label(1);
    datum.set_data(std::string(static_cast<size_t>(channels) * height * width, 'x'));
    writer.Append(datum);
    writer.Finish();
  }
};

TEST_F(UsersNetTest, CropSizeTells) {
  const PlannedModel planned = Plan(NetReadingLmdb("crop_size: 24"));
  EXPECT_EQ(planned.model.layers(0).inner_product().inputs(), 3 * 24 * 24);
  EXPECT_EQ(LineOf(planned),
            "samples of layer \"images\": 3x24x24, as its crop_size says, with 3 channels "
            "(images_lmdb is not there)");
  EXPECT_EQ(nlohmann::json::parse(PlanJson(planned))["inputs"],
            nlohmann::json::parse(
                R"([{"layer": "images", "shape": [3, 24, 24], "source": "crop_size"}])"));
}

TEST_F(UsersNetTest, SettingsTellTheChannelsOfACrop) {
  EXPECT_THAT(LineOf(Plan(NetReadingLmdb("crop_size: 24 force_gray: true"))),
              HasSubstr(": 1x24x24, as its crop_size says, with 1 channel ("));
  EXPECT_THAT(LineOf(Plan(NetReadingLmdb("crop_size: 24 mean_value: 9"))), HasSubstr(": 3x24x24,"));
  EXPECT_THAT(LineOf(Plan(NetReadingLmdb(
                  "crop_size: 24 mean_value: 9 mean_value: 9 mean_value: 9 mean_value: 9"))),
              HasSubstr(": 4x24x24,"));
}

TEST_F(UsersNetTest, WhatNothingTellsIsRefusedWithWhatToGive) {
  const std::string refusal = Refusal(NetReadingLmdb("scale: 0.5"));
  EXPECT_THAT(refusal, StartsWith("images_lmdb: no LMDB database here"));
  EXPECT_THAT(refusal, HasSubstr("--input=CxHxW, such as --input=3x224x224"));
}

TEST_F(UsersNetTest, DatabaseWinsOverCropSize) {
  WriteDatabase(5, 30, 40);
  const PlannedModel planned = Plan(NetReadingLmdb("crop_size: 24"));
  EXPECT_EQ(planned.model.layers(0).inner_product().inputs(), 5 * 24 * 24);
  EXPECT_EQ(LineOf(planned), "samples of layer \"images\": 5x24x24, as in images_lmdb");
}

TEST_F(UsersNetTest, GivenShapeWinsOverTheDatabase) {
  WriteDatabase(5, 30, 40);
  PlanOptions options =
      EightMachines(directory_.Write("net.prototxt", NetReadingLmdb("crop_size: 24")));
  options.source.record_shape = Shape{2, 30, 30};
  EXPECT_EQ(LineOf(PlanModel(options)), "samples of layer \"images\": 2x24x24, as --input says");
}

TEST_F(UsersNetTest, DamagedDatabaseIsNotPassedOver) {
  directory_.Write("images_lmdb/data.mdb", "nothing of LMDB's");
  EXPECT_THAT(Refusal(NetReadingLmdb("crop_size: 24")), HasSubstr("images_lmdb"));
}

TEST_F(UsersNetTest, InputLayerOfTheDeployedFormWinsOverCropSize) {
  const std::string deployed =
      " layer { name: 'data' type: 'Input' top: 'data' include { phase: TEST stage: 'deploy' }"
      " input_param { shape { dim: 1 dim: 1 dim: 24 dim: 24 } } }";
  const PlannedModel planned = Plan(NetReadingLmdb("crop_size: 24") + deployed);
  EXPECT_EQ(planned.model.batch(), 32);
  EXPECT_EQ(LineOf(planned),
            "samples of layer \"images\": 1x24x24, as the net's Input layer says (images_lmdb is "
            "not there)");
}

TEST_F(UsersNetTest, InputLayerOfAnotherBlobTellsNothing) {
  const std::string other =
      " layer { name: 'x' type: 'Input' top: 'x' include { phase: TEST }"
      " input_param { shape { dim: 1 dim: 1 dim: 24 dim: 24 } } }";
  EXPECT_THAT(Refusal(NetReadingLmdb("") + other), HasSubstr("--input="));
}

TEST_F(UsersNetTest, ListedImagesAreOfTheSizeThatTheyAreMade) {
  const std::string images = "source: 'list.txt' batch_size: 8";
  EXPECT_EQ(
      LineOf(Plan(NetReading("type: 'ImageData' image_data_param { " + images +
                             " new_height: 20 new_width: 30 is_color: false }"))),
      "samples of layer \"images\": 1x20x30, as its new_height and new_width say (list.txt is "
      "not there)");
  EXPECT_THAT(Refusal(NetReading("type: 'ImageData' image_data_param { " + images + " }")),
              HasSubstr("--input="));
}

TEST_F(UsersNetTest, RowsOfHdf5FilesAreAsGiven) {
  const std::string net =
      NetReading("type: 'HDF5Data' hdf5_data_param { source: 'list.txt' batch_size: 8 }");
  EXPECT_THAT(Refusal(net), HasSubstr("--input="));
  PlanOptions options = EightMachines(directory_.Path("net.prototxt"));
  options.source.record_shape = Shape{2, 3, 4};
  EXPECT_EQ(PlanModel(options).model.layers(0).inner_product().inputs(), 2 * 3 * 4);
}

TEST_F(UsersNetTest, AShapeOfRecordsThatNoLayerReadsIsRefused) {
  const std::string fixed = R"(
    layer {
      name: "images" type: "Input" top: "data" top: "label"
      input_param { shape { dim: 8 dim: 3 dim: 24 dim: 24 } shape { dim: 8 } }
    })";
  const std::string fed = R"(
    layer {
      name: "images" type: "MemoryData" top: "data" top: "label"
      memory_data_param { batch_size: 8 channels: 3 height: 24 width: 24 }
    })";
  const std::string windows = R"(
    layer {
      name: "images" type: "WindowData" top: "data" top: "label"
      transform_param { crop_size: 24 }
      window_data_param { source: "windows.txt" batch_size: 8 }
    })";
  const std::string net = NetReading("");
  const std::string rest = net.substr(net.find('}') + 1);
  for (const std::string& input : {fixed, fed, windows}) {
    SCOPED_TRACE(input);
    PlanOptions options = EightMachines(directory_.Write("net.prototxt", input + rest));
    options.source.batch.reset();
    EXPECT_EQ(PlanModel(options).model.layers(0).inner_product().inputs(), 3 * 24 * 24);
    options.source.record_shape = Shape{3, 224, 224};
    EXPECT_THAT(MessageOf<ConfigError>([&] { PlanModel(options); }),
                AllOf(HasSubstr("net.prototxt"), HasSubstr("--input"),
                      HasSubstr("the net has no such layer; change the shape in its Input, "
                                "DummyData or MemoryData layer, or the crop_size of WindowData")));
  }
}

TEST_F(UsersNetTest, LevelDbThatIsNotThereIsNotNeededEither) {
  EXPECT_THAT(LineOf(Plan(NetReading("type: 'Data' transform_param { crop_size: 24 } data_param { "
                                     "source: 'images_leveldb' batch_size: 8 }"))),
              HasSubstr(": 3x24x24, as its crop_size says"));
}

TEST_F(UsersNetTest, SimulationSaysItToo) {
  PlanOptions options =
      EightMachines(directory_.Write("net.prototxt", NetReadingLmdb("crop_size: 24")));
  const ClusterAnswer answer = SimulateModel(options, 3);
  EXPECT_THAT(SimulationTable(answer), HasSubstr("\nsamples of layer \"images\": 3x24x24, "));
  EXPECT_EQ(nlohmann::json::parse(SimulationJson(answer))["inputs"][0]["source"], "crop_size");
}

}  // namespace
}  // namespace poseidon
