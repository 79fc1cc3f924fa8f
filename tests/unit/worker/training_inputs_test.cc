// What of a net must be the same on all machines.
#include "worker/engine/training_inputs.h"

#include <gtest/gtest.h>

#include "caffe_adapter/files/caffemodel.h"
#include "core/error.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"
#include "worker/engine/replay_engine.h"

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
  const TemporaryDirectory directory;
  const auto mean = [&](const std::string& name, const std::vector<float>& values) {
    const int64_t floats = std::ssize(values);
    WriteBinaryFile(directory.Path(name), ToBlobProto({floats}, values));
    return "mean_file: '" + directory.Path(name) + "'";
  };
  const uint64_t hash = HashOf({.data = "source: 'a'", .transform = mean("m", {1, 2})});
  EXPECT_EQ(hash, HashOf({.data = "source: '/b' backend: LMDB prefetch: 2",
                          .transform = mean("another", {1, 2})}));
  EXPECT_EQ(hash, HashOf({.data = "source: 'a'",
                          .transform = mean("m", {1, 2}),
                          .loss = "include { phase: TRAIN }"}));
  // What is in a file is nobody's own.
  EXPECT_NE(hash, HashOf({.data = "source: 'a'", .transform = mean("m", {1, 3})}));
  EXPECT_THROW(HashOf({.data = "source: 'a'", .transform = "mean_file: 'nowhere'"}), DataError);
}

// The other file by which a layer computes.
TEST(HashOfNetTest, AnInfogainMatrixIsInIt) {
  const TemporaryDirectory directory;
  const auto hash_with = [&](const std::string& name, float value) {
    std::vector<float> matrix(4, 1);
    matrix[2] = value;
    WriteBinaryFile(directory.Path(name), ToBlobProto({2, 2}, matrix));
    caffe::NetParameter net;
    ParseText(
        "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
        " shape { dim: 3 dim: 2 } shape { dim: 3 } } }"
        "layer { name: 'loss' type: 'InfogainLoss' bottom: 'x' bottom: 'y'"
        " infogain_loss_param { source: '" +
            directory.Path(name) + "' } }",
        "net.prototxt", net);
    return HashOfNet(DescribeNet(net, caffe::TRAIN, {}));
  };
  EXPECT_EQ(hash_with("a", 5), hash_with("b", 5));
  EXPECT_NE(hash_with("a", 5), hash_with("a", 6));
}

TEST(CheckSameDataTest, NamesTheLayerWhoseDataHaveChanged) {
  std::vector<wire::TrainingData> before(2);
  before[0].set_layer("images");
  before[1].set_layer("labels");
  for (wire::TrainingData& data : before) data.set_records(300);
  const auto error = [&](int64_t records, uint64_t fingerprint) {
    std::vector<wire::TrainingData> now = before;
    now[1].set_records(records);
    now[1].set_fingerprint(fingerprint);
    return MessageOf<DataError>([&] { CheckSameData(before, now); });
  };
  const std::string changed = "layer \"labels\": the data has changed since the job began: ";
  EXPECT_EQ(error(300, 0), "");
  EXPECT_EQ(error(200, 0), changed + "200 records, it had 300; start the job again");
  EXPECT_EQ(error(300, 1), changed + "as many records, but not the same; start the job again");
}

// Layer "a" is trained, layer "frozen" is not.
class FrozenLayerEngine : public ReplayEngine {
 public:
  FrozenLayerEngine() : ReplayEngine(TrainedLayer(), 0, 1) {
    for (const char* const name : {"a", "frozen"}) {
      LayerDescription& layer = net_.layers.emplace_back();
      layer.parameter.set_name(name);
      layer.parameters = {{.shape = {1}, .filler = {}}};
    }
  }

  const NetDescription* net() const override { return &net_; }
  NetValues UntrainedValues() const override { return AllBlobs(0); }

  // A file with this value in every blob.
  void Write(const std::string& path, float value) const {
    WriteCaffemodel(path, net_, AllBlobs(value));
  }

 private:
  static Replay TrainedLayer() {
    Replay replay;
    ReplayLayer& layer = *replay.add_layers();
    layer.set_name("a");
    layer.set_parameters(1);
    return replay;
  }
  static NetValues AllBlobs(float value) {
    const std::vector<float> blob(1, value);
    return NetValues(2, std::vector<std::vector<float>>(1, blob));
  }

  NetDescription net_;
};

// Who comes later gets these values from the others; at the job's start the trainer needs the file.
TEST(InputsOfTest, ValuesOfAFileThatCanNotBeReadAreNotDeclared) {
  const TemporaryDirectory directory;
  const FrozenLayerEngine engine;
  engine.Write(directory.Path("one"), 1);
  engine.Write(directory.Path("two"), 2);
  const auto inputs_with = [&](const std::vector<std::string>& weights) {
    return InputsOf(engine, weights, std::nullopt);
  };
  const wire::TrainingInputs inputs = inputs_with({directory.Path("one")});
  EXPECT_TRUE(inputs.has_untrained());
  EXPECT_NE(inputs.untrained(), inputs_with({directory.Path("two")}).untrained());
  const std::string cut_off = directory.Path("cut off");
  engine.Write(cut_off, 1);
  std::filesystem::resize_file(cut_off, std::filesystem::file_size(cut_off) - 1);
  for (const std::string& bad : {directory.Path("gone"), cut_off}) {
    const wire::TrainingInputs without = inputs_with({directory.Path("one"), bad});
    EXPECT_FALSE(without.has_untrained()) << bad;
    EXPECT_EQ(without.net(), inputs.net()) << bad;
  }
}

}  // namespace
}  // namespace poseidon
