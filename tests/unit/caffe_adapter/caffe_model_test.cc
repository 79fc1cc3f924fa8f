#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <random>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/files/solver_state.h"
#include "caffe_adapter/net/filler.h"
#include "core/error.h"
#include "proto/text_format.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

NetDescription Describe(int outputs) {
  caffe::NetParameter net;
  ParseText(
      "name: 'n' layer { name: 'x' type: 'Input' top: 'x'"
      " input_param { shape { dim: 2 dim: 3 } } }"
      " layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a'"
      " inner_product_param { num_output: " +
          std::to_string(outputs) +
          " } }"
          " layer { name: 'b' type: 'InnerProduct' bottom: 'x' top: 'b'"
          " inner_product_param { num_output: 1 bias_term: false } }",
      "net", net);
  return DescribeNet(net, caffe::TRAIN);
}

NetValues RandomValues(const NetDescription& net, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  NetValues values;
  for (const LayerDescription& layer : net.layers) {
    auto& blobs = values.emplace_back();
    for (const ParameterDescription& parameter : layer.parameters) {
      auto& blob = blobs.emplace_back(Count(parameter.shape));
      for (float& value : blob) value = normal(random);
    }
  }
  return values;
}

TEST(CaffeModelTest, WhatIsWrittenIsRead) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("n.caffemodel");
  const NetDescription net = Describe(4);
  const NetValues written = RandomValues(net, 1);
  WriteCaffemodel(path, net, written);
  NetValues read = RandomValues(net, 2);
  ReadCaffemodel(path, net, read);
  EXPECT_EQ(read, written);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()),
                          std::filesystem::directory_iterator()),
            1);
}

// Caffe writes neither a shape nor the four old numbers of a blob without axes: a PReLU's that its
// channels share, a Scale's or Bias's with num_axes 0.
TEST(CaffeModelTest, CaffesScalarsAreRead) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("scalars.caffemodel");
  caffe::NetParameter parameter;
  ParseText(
      "name: 'n' layer { name: 'x' type: 'Input' top: 'x'"
      " input_param { shape { dim: 2 dim: 3 } } }"
      " layer { name: 'p' type: 'PReLU' bottom: 'x' top: 'p'"
      " prelu_param { channel_shared: true } }"
      " layer { name: 's' type: 'Scale' bottom: 'p' top: 's'"
      " scale_param { num_axes: 0 bias_term: true } }",
      "net", parameter);
  const NetDescription net = DescribeNet(parameter, caffe::TRAIN);
  ASSERT_EQ(net.layers[1].parameters[0].shape, Shape());
  caffe::NetParameter stored;
  for (const char* name : {"p", "s"}) {
    caffe::LayerParameter& layer = *stored.add_layer();
    layer.set_name(name);
    layer.add_blobs()->add_data(name[0] == 'p' ? 0.5F : 2.0F);
  }
  stored.mutable_layer(1)->add_blobs()->add_data(-1);
  std::ofstream(path, std::ios::binary) << stored.SerializeAsString();
  NetValues values = RandomValues(net, 1);
  ReadCaffemodel(path, net, values);
  EXPECT_THAT(values[1][0], ElementsAre(0.5F));
  EXPECT_THAT(values[2][0], ElementsAre(2));
  EXPECT_THAT(values[2][1], ElementsAre(-1));

  stored.mutable_layer(0)->mutable_blobs(0)->add_data(1);  // two floats are no scalar
  std::ofstream(path, std::ios::binary) << stored.SerializeAsString();
  EXPECT_THROW(ReadCaffemodel(path, net, values), DataError);
}

TEST(CaffeModelTest, LayersAreFoundByName) {
  const TemporaryDirectory directory;
  const NetDescription net = Describe(4);
  const NetValues written = RandomValues(net, 1);
  WriteCaffemodel(directory.Path("m"), net, written);
  NetDescription other = net;
  std::swap(other.layers[1], other.layers[2]);
  other.layers[2].parameter.set_name("new");
  const NetValues before = RandomValues(other, 3);
  NetValues read = before;
  ReadCaffemodel(directory.Path("m"), other, read);
  EXPECT_EQ(read[1], written[2]);
  EXPECT_EQ(read[2], before[2]);
}

TEST(CaffeModelTest, ModelsThatDoNotFit) {
  const TemporaryDirectory directory;
  const NetDescription net = Describe(4);
  NetValues values = RandomValues(net, 1);
  WriteCaffemodel(directory.Path("m"), net, values);
  NetDescription wider = Describe(5);
  EXPECT_EQ(MessageOf<DataError>([&] { ReadCaffemodel(directory.Path("m"), wider, values); }),
            directory.Path("m") + ": layer \"a\": blob 0 is 4 x 3; the net's is 5 x 3");
  wider.layers[1].parameters.pop_back();
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCaffemodel(directory.Path("m"), wider, values); }),
              HasSubstr("layer \"a\": has 2 blobs; the net's has 1"));
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCaffemodel(directory.Path("none"), net, values); }),
              HasSubstr("can't read " + directory.Path("none") + ": No such file"));
  std::filesystem::resize_file(directory.Path("m"), 60);
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCaffemodel(directory.Path("m"), net, values); }),
              HasSubstr(": is no .caffemodel or is truncated or corrupt"));
  EXPECT_THAT(MessageOf<Error>([&] { WriteCaffemodel("/no/such/dir/m", net, values); }),
              HasSubstr("/no/such/dir/m"));
}

class CaffeModelFormatTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (IsHdf5Path(GetParam()) && !HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  }
};

TEST_P(CaffeModelFormatTest, TheModelOfAnotherNet) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path(GetParam());
  const NetDescription net = Describe(4);
  WriteCaffemodel(path, net, RandomValues(net, 1));
  NetDescription other = net;
  other.name = "other";
  other.layers[1].parameter.set_name("fc6");
  other.layers[2].parameter.set_name("fc7");
  NetValues values = RandomValues(other, 1);
  EXPECT_EQ(
      MessageOf<DataError>([&] { ReadCaffemodel(path, other, values); }),
      path +
          ": is the model of another net: it has values for a, b, and the net \"other\" wants "
          "them for fc6, fc7");
}

// As when a net is fine-tuned for other classes.
TEST_P(CaffeModelFormatTest, WhatTheNetLacksIsSaid) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path(GetParam());
  const NetDescription net = Describe(4);
  WriteCaffemodel(path, net, RandomValues(net, 1));
  NetDescription other = net;
  other.layers[2].parameter.set_name("new/b");
  NetValues values = RandomValues(other, 1);
  EXPECT_EQ(ToString(ReadCaffemodel(path, other, values)),
            "copied a; not in the file: new/b; not in the net: b");
  WriteCaffemodel(path, other, values);
  EXPECT_EQ(ToString(ReadCaffemodel(path, other, values)), "copied a, new/b");
}

TEST_P(CaffeModelFormatTest, ModelAndSolverStateAreTakenForWhatTheyAre) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path(GetParam());
  const NetDescription net = Describe(4);
  NetValues values = RandomValues(net, 1);
  WriteCaffemodel(path, net, values);
  EXPECT_THAT(MessageOf<DataError>([&] { ReadSolverState(path); }),
              StartsWith(path + ": is a model, and no solver state; give it as --weights"));
  WriteSolverState(path, {.iteration = 7, .learned_net = "out/x_iter_7.caffemodel", .history = {}});
  EXPECT_EQ(MessageOf<DataError>([&] { ReadCaffemodel(path, net, values); }),
            path +
                ": is a solver state, and no model; give the .caffemodel that was written with "
                "it, or, to go on with a training, give it to `poseidon run` as --snapshot");
}

INSTANTIATE_TEST_SUITE_P(Formats, CaffeModelFormatTest, ::testing::Values("m", "m.h5"));

TEST(CaffeModelTest, Hdf5IsKnownWhateverTheFilesName) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  const TemporaryDirectory directory;
  const NetDescription net = Describe(4);
  const NetValues written = RandomValues(net, 1);
  WriteCaffemodel(directory.Path("m.h5"), net, written);
  std::filesystem::rename(directory.Path("m.h5"), directory.Path("m.hdf5"));
  NetValues read = RandomValues(net, 2);
  ReadCaffemodel(directory.Path("m.hdf5"), net, read);
  EXPECT_EQ(read, written);
}

// Without the library, it is that which is told.
TEST(CaffeModelTest, WhatBeginsAsHdf5IsNotTakenForAProtobufMessage) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("m.caffemodel");
  std::ofstream(path, std::ios::binary) << "\x89HDF\r\n\x1a\n";
  const NetDescription net = Describe(4);
  NetValues values = RandomValues(net, 1);
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCaffemodel(path, net, values); }),
              HasSubstr(HasHdf5() ? ": is no HDF5 file or is truncated or corrupt"
                                  : ": reading HDF5 needs its library, which this build lacks"));
}

// It says nothing of the file, and training must not go back behind it for that.
TEST(CaffeModelDeathTest, AFileThatCanNotBeReadForAMomentIsNotTakenForOneThatIsCutOff) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("m");
  const NetDescription net = Describe(4);
  WriteCaffemodel(path, net, RandomValues(net, 1));
  const auto read = [&path] {
    BreakCall({.number = SYS_read, .error = EIO});
    try {
      caffe::NetParameter model;
      ReadBinaryFile(path, model);
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  EXPECT_EXIT(read(), testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
              "can't read " + path + ": Input/output error; this may pass, so try again");
}

TEST(CaffeModelTest, ShapesOfFilesMayBeAnything) {
  for (const char* shape : {"dim: -2 dim: -3", "dim: 4294967296 dim: 4294967296", "dim: 7"}) {
    caffe::BlobProto blob;
    ParseText(std::string("shape { ") + shape + " } data: [1, 2, 3, 4, 5, 6]", "blob", blob);
    EXPECT_THAT(MessageOf<DataError>([&] { ToValues(blob); }), HasSubstr("has 6 values; expected"));
  }
}

TEST(CaffeModelTest, BlobsOfOldFilesAndOfDoubles) {
  caffe::BlobProto old;
  ParseText("num: 1 channels: 1 height: 2 width: 3 double_data: [1, 2, 3, 4, 5, 6]", "blob", old);
  EXPECT_THAT(BlobProtoShape(old), ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(ToValues(old), ElementsAre(1, 2, 3, 4, 5, 6));
  old.mutable_double_data()->RemoveLast();
  EXPECT_EQ(MessageOf<DataError>([&] { ToValues(old); }),
            "a blob of 1 x 1 x 2 x 3 has 5 values; expected 6");
  const TemporaryDirectory directory;
  caffe::NetParameter model;
  ParseText(
      "layer { name: 'a' blobs { num: 1 channels: 1 height: 1 width: 3 data: [1, 2, 3] }"
      " blobs { num: 1 channels: 1 height: 1 width: 1 data: 4 } }",
      "model", model);
  WriteBinaryFile(directory.Path("m"), model);
  const NetDescription net = Describe(1);
  NetValues values = RandomValues(net, 1);
  ReadCaffemodel(directory.Path("m"), net, values);
  EXPECT_THAT(values[1][0], ElementsAre(1, 2, 3));
  EXPECT_THAT(values[1][1], ElementsAre(4));
}

NetDescription DescribeWithBlobs(const std::string& blobs) {
  caffe::NetParameter net;
  const TextLocations locations = ParseText(
      "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }"
      " layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a'"
      " inner_product_param { num_output: 1 }\n" +
          blobs + " }",
      "net", net);
  DescribeOptions options;
  options.locate = [&](const std::string& path) { return locations.Find(net, path); };
  return DescribeNet(net, caffe::TRAIN, options);
}

constexpr char kWeights[] = " blobs { shape { dim: 1 dim: 3 } data: [1, 2, 3] }\n";
constexpr char kOldBias[] = " blobs { num: 1 channels: 1 height: 1 width: 1 data: 4 }\n";

// As in Caffe, whose layers fill nothing that they are written with.
TEST(CaffeModelTest, ValuesWrittenInTheNetTakeTheFillersPlace) {
  const NetDescription net = DescribeWithBlobs(std::string(kWeights) + kOldBias);
  std::vector<float> values(4);
  FillLayer(net.layers[1], 1, values);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4));
}

TEST(CaffeModelTest, AModelOfANetWithWrittenValuesHasEachBlobOnce) {
  const TemporaryDirectory directory;
  const NetDescription net = DescribeWithBlobs(std::string(kWeights) + kOldBias);
  const NetValues written = RandomValues(net, 1);
  WriteCaffemodel(directory.Path("m"), net, written);
  NetValues read = RandomValues(net, 2);
  ReadCaffemodel(directory.Path("m"), net, read);
  EXPECT_EQ(read, written);
}

TEST(CaffeModelTest, WrittenValuesThatDoNotFitAreRefused) {
  const auto error = [](const std::string& blobs) {
    return MessageOf<ConfigError>([&] { DescribeWithBlobs(blobs); });
  };
  EXPECT_EQ(error(kWeights),
            "net:2:2: layer \"a\" (InnerProduct): has the values of 1 blob; expected those of 2, "
            "as many as it has, or none");
  EXPECT_EQ(error(std::string(kWeights) + kWeights),
            "net:3:2: layer \"a\" (InnerProduct): the values of blob 1 are of 1 x 3; expected 1");
  EXPECT_EQ(error(std::string(kWeights) + " blobs { shape { dim: 1 } data: [1, 2] }"),
            "net:3:2: layer \"a\" (InnerProduct): blob 1: a blob of 1 has 2 values; expected 1");
}

// Bytes as Caffe's own schema gives them, put down by hand: tag = field number * 8 + wire type.
TEST(CaffeModelTest, WireFormatIsCaffes) {
  caffe::Datum datum;
  ASSERT_TRUE(datum.ParseFromString(std::string("\x08\x01\x10\x02\x18\x03\x22\x02zz\x28\x07", 12)));
  EXPECT_EQ(datum.channels(), 1);
  EXPECT_EQ(datum.height(), 2);
  EXPECT_EQ(datum.width(), 3);
  EXPECT_EQ(datum.data(), "zz");
  EXPECT_EQ(datum.label(), 7);
  // layer = 100 { name = 1: "a", blobs = 7 { data = 5 packed: 1.0, shape = 7 { dim = 1 packed: 1 }
  // } }
  caffe::NetParameter net;
  ASSERT_TRUE(
      net.ParseFromString(std::string("\xa2\x06\x10\x0a\x01"
                                      "a\x3a\x0b\x2a\x04\x00\x00\x80\x3f"
                                      "\x3a\x03\x0a\x01\x01",
                                      19)));
  EXPECT_EQ(net.layer(0).name(), "a");
  EXPECT_THAT(ToValues(net.layer(0).blobs(0)), ElementsAre(1));
}

// Only the first bytes, which tell the format, can't be read here, and all could be afterwards.
TEST(CaffeModelDeathTest, AFileWhoseFirstBytesCanNotBeReadForAMomentIsNotTakenForProtobufs) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("m");
  const NetDescription net = Describe(4);
  NetValues values = RandomValues(net, 1);
  WriteCaffemodel(path, net, values);
  const auto read = [&] {
    BreakCall({.number = SYS_pread64, .error = EIO, .argument = 2, .least = 8});
    try {
      ReadCaffemodel(path, net, values);
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  EXPECT_EXIT(read(), testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
              "can't read " + path + ": Input/output error; this may pass, so try again");
}

}  // namespace
}  // namespace poseidon
