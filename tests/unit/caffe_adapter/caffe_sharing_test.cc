// Parameters that layers share by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/files/hdf5_writer.h"
#include "caffe_adapter/net/net.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kInput[] =
    "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }\n";

std::string InnerProduct(const std::string& name, const std::string& bottom,
                         const std::string& fields) {
  return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
         name + "' " + fields + " }\n";
}

NetDescription Describe(const std::string& layers) {
  caffe::NetParameter net;
  const TextLocations locations = ParseText(kInput + layers, "net.prototxt", net);
  DescribeOptions options;
  options.locate = [&](const std::string& path) { return locations.Find(net, path); };
  return DescribeNet(net, caffe::TRAIN, options);
}

std::string DescribeError(const std::string& layers) {
  return MessageOf<ConfigError>([&] { Describe(layers); });
}

const char kThree[] = " inner_product_param { num_output: 3 }";

TEST(CaffeSharingTest, TheFirstLayerOwnsWhatOthersUse) {
  const NetDescription net = Describe(
      InnerProduct("a", "x", std::string("param { name: 'w' lr_mult: 2 }") + kThree) +
      InnerProduct("b", "a", std::string("param { name: 'w' } param { name: 'v' }") + kThree) +
      InnerProduct("c", "b", std::string("param { name: 'w' decay_mult: 3 }") + kThree));
  const auto parameter = [&](int layer, int blob) { return net.layers[layer].parameters[blob]; };
  EXPECT_FALSE(parameter(1, 0).owner);
  EXPECT_TRUE(parameter(1, 0).shared);
  EXPECT_FALSE(parameter(1, 1).shared);
  for (const int user : {2, 3}) {
    ASSERT_TRUE(parameter(user, 0).owner);
    EXPECT_EQ(parameter(user, 0).owner->layer, 1);
    EXPECT_EQ(parameter(user, 0).owner->blob, 0);
  }
  EXPECT_FALSE(parameter(2, 1).owner) << "the first and only one of its name";
  for (const int layer : {1, 2, 3}) {
    EXPECT_EQ(parameter(layer, 0).lr_mult, 2) << layer;
    EXPECT_EQ(parameter(layer, 0).decay_mult, 3) << layer;
  }
}

TEST(CaffeSharingTest, TheModelHasASharedBlobOnce) {
  const ModelSpec model = ToModelSpec(
      Describe(InnerProduct("a", "x", std::string("param { name: 'w' }") + kThree) +
               InnerProduct("b", "a", std::string("param { name: 'w' }") + kThree) +
               InnerProduct("c", "b",
                            "param { name: 'w' } inner_product_param { num_output: 3 bias_term: "
                            "false }") +
               InnerProduct("d", "c", kThree)),
      {});
  ASSERT_EQ(model.layers_size(), 3);
  EXPECT_EQ(model.layers(0).name(), "a");
  EXPECT_EQ(model.layers(0).blobs_size(), 2);
  EXPECT_FALSE(model.layers(0).has_inner_product()) << "its gradient is a sum of products";
  EXPECT_EQ(model.layers(1).name(), "b");
  ASSERT_EQ(model.layers(1).blobs_size(), 1);
  EXPECT_THAT(model.layers(1).blobs(0).shape(), ElementsAre(3));
  EXPECT_EQ(model.layers(2).name(), "d") << "c has nothing of its own";
  EXPECT_TRUE(model.layers(2).has_inner_product());
}

// Both branches of a siamese net compute, though what they learn is declared once.
TEST(CaffeSharingTest, BranchesThatShareAllComputeTwice) {
  const auto branch = [](const std::string& number) {
    return InnerProduct("a" + number, "x",
                        "param { name: 'a' } param { name: 'a_bias' }"
                        " inner_product_param { num_output: 9 }") +
           InnerProduct("b" + number, "a" + number,
                        std::string("param { name: 'b' } param { name: 'b_bias' }") + kThree);
  };
  const auto multiply_adds = [](const std::string& layers) {
    int64_t sum = 0;
    const ModelSpec model = ToModelSpec(Describe(layers), {});
    EXPECT_EQ(model.layers_size(), 2);
    for (const LayerSpec& layer : model.layers()) sum += layer.multiply_adds();
    return sum;
  };
  EXPECT_EQ(multiply_adds(branch("1")), 3 * 9 + 9 * 3);
  EXPECT_EQ(multiply_adds(branch("1") + branch("2")), 2 * multiply_adds(branch("1")));
}

TEST(CaffeSharingTest, APermissiveShareNeedsAsManyValuesOnly) {
  const std::string wide = "inner_product_param { num_output: 3 }";
  const std::string tall =
      "layer { name: 'y' type: 'Input' top: 'y' input_param { shape { dim: 1"
      " dim: 1 } } }\n";
  const std::string second = "inner_product_param { num_output: 9 bias_term: false }";
  const std::string first = InnerProduct("a", "x", "param { name: 'w' }" + wide);
  EXPECT_EQ(DescribeError(
                first + tall +
                InnerProduct("b", "y", "param {\n name: 'w' share_mode: PERMISSIVE }" + second)),
            "");
  EXPECT_EQ(DescribeError(first + tall + InnerProduct("b", "y", "param {\n name: 'w' }" + second)),
            "net.prototxt:5:2: layer \"b\" (InnerProduct): parameter \"w\" is 9 x 1, but 3 x 3 in "
            "layer \"a\", which it is shared with; expected the same shape");
  EXPECT_THAT(DescribeError(first + tall +
                            InnerProduct("b", "y",
                                         "param {\n name: 'w' share_mode: PERMISSIVE }"
                                         "inner_product_param { num_output: 8 }")),
              HasSubstr("expected as many values"));
}

TEST(CaffeSharingTest, MultipliersThatContradict) {
  const auto error = [](const std::string& first, const std::string& second) {
    return DescribeError(InnerProduct("a", "x", "param { name: 'w' " + first + " }" + kThree) +
                         InnerProduct("b", "a", "param {\n name: 'w' " + second + " }" + kThree));
  };
  EXPECT_EQ(error("lr_mult: 2", "lr_mult: 2 decay_mult: 0"), "");
  EXPECT_EQ(error("", "lr_mult: 5"), "");
  EXPECT_THAT(
      error("lr_mult: 2", "lr_mult: 1"),
      HasSubstr("net.prototxt:4:12: layer \"b\" (InnerProduct): parameter \"w\" has lr_mult "
                "1.000000, but 2.000000 in layer \"a\""));
  EXPECT_THAT(error("decay_mult: 2", "decay_mult: 1"), HasSubstr("has decay_mult"));
}

TEST(CaffeSharingTest, ModelsHoldSharedValuesInEachLayerThatUsesThem) {
  const TemporaryDirectory directory;
  const NetDescription net =
      Describe(InnerProduct("a", "x", std::string("param { name: 'w' }") + kThree) +
               InnerProduct("b", "a", std::string("param { name: 'w' }") + kThree));
  NetValues values = {{}, {std::vector<float>(9, 2), {1, 2, 3}}, {{}, {4, 5, 6}}};
  WriteCaffemodel(directory.Path("m"), net, values);
  caffe::NetParameter model;
  ReadBinaryFile(directory.Path("m"), model);
  EXPECT_EQ(ToValues(model.layer(2).blobs(0)), values[1][0]);

  for (float& value : *model.mutable_layer(2)->mutable_blobs(0)->mutable_data()) value = 7;
  WriteBinaryFile(directory.Path("m"), model);
  NetValues read = {{}, {{}, {}}, {{}, {}}};
  ReadCaffemodel(directory.Path("m"), net, read);
  EXPECT_EQ(read[1][0], std::vector<float>(9, 7)) << "the last one holds, as in Caffe";
  EXPECT_TRUE(read[2][0].empty());
  EXPECT_EQ(read[2][1], values[2][1]);
}

// Layers of three outputs, one after the other, whose weights are one parameter.
NetDescription Alike(const std::vector<std::string>& names) {
  std::string layers;
  std::string bottom = "x";
  for (const std::string& name : names) {
    layers += InnerProduct(name, bottom, std::string("param { name: 'w' }") + kThree);
    bottom = name;
  }
  return Describe(layers);
}

// Of models, in each of Caffe's formats that the build has.
std::vector<std::string> ModelNames() {
  return HasHdf5() ? std::vector<std::string>{"m", "m.h5"} : std::vector<std::string>{"m"};
}

// In HDF5 a shared blob is written once: in the layer that owned it in the net of the file.
TEST(CaffeSharingTest, AFileMayHaveSharedValuesInAnotherLayerThanTheOwner) {
  const TemporaryDirectory directory;
  const std::vector<float> weights(9, 2);
  for (const std::string& name : ModelNames()) {
    const std::string path = directory.Path(name);
    WriteCaffemodel(path, Alike({"b", "c"}), {{}, {weights, {1, 2, 3}}, {{}, {4, 5, 6}}});
    NetValues read = {{}, {std::vector<float>(9, 0), {7, 8, 9}}, {{}, {}}, {{}, {}}};
    EXPECT_EQ(ToString(ReadCaffemodel(path, Alike({"a", "b", "c"}), read)),
              "copied b, c; not in the file: a")
        << name;
    EXPECT_EQ(read, (NetValues{{}, {weights, {7, 8, 9}}, {{}, {1, 2, 3}}, {{}, {4, 5, 6}}}))
        << name;
  }
}

// As of a net whose layers have come to share: HDF5's are read in the order of their names.
TEST(CaffeSharingTest, OfSeveralValuesOfASharedBlobThoseOfTheFilesLastLayerHold) {
  const TemporaryDirectory directory;
  const std::string no_bias = " inner_product_param { num_output: 3 bias_term: false }";
  const auto net = [&no_bias](const std::string& first, const std::string& second,
                              const std::string& param) {
    return Describe(InnerProduct(first, "x", param + no_bias) +
                    InnerProduct(second, "x", param + no_bias));
  };
  const std::string share = "param { name: 'w' }";
  const std::vector<float> of_a(9, 2);
  const std::vector<float> of_b(9, 3);
  for (const std::string& name : ModelNames()) {
    const std::string path = directory.Path(name);
    WriteCaffemodel(path, net("a", "b", ""), {{}, {of_a}, {of_b}});
    NetValues read = {{}, {{}}, {{}}};
    EXPECT_EQ(ToString(ReadCaffemodel(path, net("b", "a", share), read)), "copied b, a") << name;
    EXPECT_EQ(read, (NetValues{{}, {of_b}, {{}}})) << name;

    WriteCaffemodel(path, net("b", "a", ""), {{}, {of_b}, {of_a}});
    ReadCaffemodel(path, net("a", "b", share), read);
    EXPECT_EQ(read, (NetValues{{}, {IsHdf5Path(name) ? of_b : of_a}, {{}}})) << name;
  }
}

// Nothing is lacking then, and a snapshot can be gone on from.
TEST(CaffeSharingTest, ALayerAllOfWhoseValuesOthersHaveInTheFileIsNotSaidToLackThem) {
  const TemporaryDirectory directory;
  const std::vector<float> weights(9, 2);
  const auto net = [](const std::vector<std::string>& names) {
    std::string layers;
    for (const std::string& name : names) {
      layers += InnerProduct(name, "x",
                             "param { name: 'w' } inner_product_param { num_output: 3"
                             " bias_term: false }");
    }
    return Describe(layers);
  };
  for (const std::string& name : ModelNames()) {
    const std::string path = directory.Path(name);
    WriteCaffemodel(path, net({"b", "c"}), {{}, {weights}, {{}}});
    NetValues two = {{}, {{}}, {{}}};
    EXPECT_EQ(ToString(ReadCaffemodel(path, net({"c", "b"}), two)), "copied c, b") << name;
    EXPECT_EQ(two, (NetValues{{}, {weights}, {{}}})) << name;
    NetValues three = {{}, {{}}, {{}}, {{}}};
    EXPECT_EQ(ToString(ReadCaffemodel(path, net({"a", "c", "b"}), three)), "copied a, c, b")
        << name;
    EXPECT_EQ(three, (NetValues{{}, {weights}, {{}}, {{}}})) << name;
    ReadSnapshotValues({.path = "", .state = {}, .model = path}, net({"c", "b"}), two);
  }
}

TEST(CaffeSharingTest, ANewLayerThatSharesKeepsTheRest) {
  const TemporaryDirectory directory;
  const std::vector<float> weights(9, 2);
  for (const std::string& name : ModelNames()) {
    const std::string path = directory.Path(name);
    WriteCaffemodel(path, Alike({"a"}), {{}, {weights, {1, 2, 3}}});
    NetValues read = {{}, {{}, {}}, {{}, {4, 5, 6}}};
    EXPECT_EQ(ToString(ReadCaffemodel(path, Alike({"a", "b"}), read)),
              "copied a; not in the file: b")
        << name;
    EXPECT_EQ(read, (NetValues{{}, {weights, {1, 2, 3}}, {{}, {4, 5, 6}}})) << name;
  }
}

TEST(CaffeSharingTest, AShareOfAnotherShapeIsWrittenAndRead) {
  const TemporaryDirectory directory;
  const NetDescription net = Describe(
      InnerProduct("a", "x", std::string("param { name: 'w' }") + kThree) +
      "layer { name: 'y' type: 'Input' top: 'y' input_param { shape { dim: 1 dim: 1 } } }" +
      InnerProduct("b", "y",
                   "param { name: 'w' share_mode: PERMISSIVE }"
                   " inner_product_param { num_output: 9 bias_term: false }"));
  const NetValues written = {{}, {std::vector<float>(9, 2), {1, 2, 3}}, {}, {{}}};
  for (const std::string& name : ModelNames()) {
    WriteCaffemodel(directory.Path(name), net, written);
    NetValues read = {{}, {{}, {}}, {}, {{}}};
    EXPECT_EQ(ToString(ReadCaffemodel(directory.Path(name), net, read)), "copied a, b") << name;
    EXPECT_EQ(read, written) << name;
  }
}

// Caffe writes a group for each layer, and only what a layer owns into it. With a parameter that is
// no longer shared Caffe refuses such a file ("Incompatible number of blobs").
TEST(CaffeSharingTest, ALayerWhoseGroupLacksABlobIsRefused) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  const TemporaryDirectory directory;
  const std::string path = directory.Path("m.h5");
  const std::vector<float> weights(9, 2);
  Hdf5Writer file(path);
  for (const char* group : {"data", "data/x", "data/a", "data/b"}) file.AddGroup(group);
  file.AddFloats("data/a/0", {3, 3}, weights);
  file.Write();
  const std::string no_bias = " inner_product_param { num_output: 3 bias_term: false }";
  const auto net = [&no_bias](const std::string& param) {
    return Describe(InnerProduct("a", "x", param + no_bias) +
                    InnerProduct("b", "a", param + no_bias));
  };
  NetValues read = {{}, {{}}, {{}}};
  EXPECT_EQ(ToString(ReadCaffemodel(path, net("param { name: 'w' }"), read)), "copied a, b");
  EXPECT_EQ(read, (NetValues{{}, {weights}, {{}}}));
  EXPECT_EQ(MessageOf<DataError>([&] { ReadCaffemodel(path, net(""), read); }),
            path + ": layer \"b\": lacks blob 0, which this net's layer owns");
}

TEST(CaffeSharingTest, ALayerWithMoreBlobsThanTheNetsIsToldWithAllOfThem) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  const TemporaryDirectory directory;
  const std::string path = directory.Path("m.h5");
  Hdf5Writer file(path);
  for (const char* group : {"data", "data/a"}) file.AddGroup(group);
  for (const char* blob : {"data/a/0", "data/a/1", "data/a/2", "data/a/3"}) {
    file.AddFloats(blob, {3}, std::vector<float>(3, 2));
  }
  file.Write();
  NetValues read = {{}, {{}, {}}};
  EXPECT_EQ(MessageOf<DataError>([&] { ReadCaffemodel(path, Alike({"a"}), read); }),
            path + ": layer \"a\": has 4 blobs; the net's has 2");
}

// A group may be there for other layers only, even where it has the name of a blob.
TEST(CaffeSharingTest, ALayerWhoseNameBeginsOthersIsNotTakenForTheirGroup) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  const TemporaryDirectory directory;
  const std::string path = directory.Path("m.h5");
  for (const std::string name : {"a/b", "a/0", "a/1"}) {
    WriteCaffemodel(path, Describe(InnerProduct(name, "x", kThree)),
                    {{}, {std::vector<float>(9, 2), {1, 2, 3}}});
    const NetDescription net =
        Describe(InnerProduct(name, "x", kThree) + InnerProduct("a", "x", kThree));
    NetValues read = {{}, {{}, {}}, {{}, {}}};
    EXPECT_EQ(ToString(ReadCaffemodel(path, net, read)), "copied " + name + "; not in the file: a");
  }
}

}  // namespace
}  // namespace poseidon
