#include "proto/text_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "proto/caffe.pb.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// What ParseText says of a net that it refuses.
std::string NetError(const std::string& text) {
  caffe::NetParameter net;
  try {
    ParseText(text, "net.prototxt", net);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TextFormatTest, UnknownFieldNamesTheNearestOneAndItsPlace) {
  const std::string error = NetError(
      "name: 'a'  # layer { x: 1 }\n"
      "layer {\n"
      "  name: 'pool'\n"
      "  pooling_param { kernel_size: 2 strid : 2 }\n"
      "}\n");
  EXPECT_EQ(error,
            "net.prototxt:4:34: PoolingParameter has no field \"strid\"; did you mean \"stride\"?");
}

TEST(TextFormatTest, UnknownMessageFieldAndFieldOfTheRoot) {
  EXPECT_EQ(NetError("layr { name: 'x' }"),
            "net.prototxt:1:1: NetParameter has no field \"layr\"; did you mean \"layer\"?");
  EXPECT_THAT(NetError("layer < name: 'x' include { phse: TEST } >"),
              StartsWith("net.prototxt:1:29: NetStateRule has no field \"phse\"; did you mean "
                         "\"phase\"?"));
}

TEST(TextFormatTest, AFieldOfAForkOfCaffeSaysWhose) {
  EXPECT_EQ(
      NetError("layer { permute_param { order: 0 } }"),
      "net.prototxt:1:9: LayerParameter has no field \"permute_param\"; SSD's fork of Caffe has "
      "it");
  EXPECT_THAT(
      NetError("layer { batch_norm_param { scale_bias: true } }"),
      HasSubstr("has no field \"scale_bias\"; NVIDIA's fork of Caffe has it; write a Scale"));
}

TEST(TextFormatTest, AFieldLikeNoOtherListsAll) {
  EXPECT_THAT(NetError("layer { include { wxyz: 1 } }"),
              HasSubstr("has no field \"wxyz\"; its fields are phase, min_level, max_level, stage, "
                        "not_stage"));
}

TEST(TextFormatTest, BadEnumValueListsTheAllowedOnesOfThatMessage) {
  const std::string error = NetError("layer { pooling_param { pool: MEAN } }");
  EXPECT_THAT(error, StartsWith("net.prototxt:1:"));
  EXPECT_THAT(error, HasSubstr("\"MEAN\""));
  EXPECT_THAT(error, HasSubstr("Allowed: MAX, AVE, STOCHASTIC."));
  // The same field name in another message has other values.
  EXPECT_THAT(NetError("layer { eltwise_param { operation: MEAN } }"),
              HasSubstr("Allowed: PROD, SUM, MAX."));
  EXPECT_THAT(NetError("layer { reduction_param { operation: PROD } }"),
              HasSubstr("Allowed: SUM, ASUM, SUMSQ, MEAN."));
}

TEST(TextFormatTest, BadValuesNameFieldAndType) {
  EXPECT_THAT(NetError("force_backward: maybe"), HasSubstr("Allowed: true, false."));
  const std::string error = NetError("layer {\n  data_param { batch_size: -1 }\n}");
  EXPECT_THAT(error, StartsWith("net.prototxt:2:"));
  EXPECT_THAT(error, HasSubstr("in field \"batch_size\", uint32"));
  EXPECT_THAT(NetError("layer { bottom: 3 }"), HasSubstr("in field \"bottom\", string"));
}

TEST(TextFormatTest, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(NetError("\xef\xbb\xbfname: 'a'"), "");
  EXPECT_THAT(NetError("\xef\xbb\xbfnam: 'a'"),
              StartsWith("net.prototxt:1:1: NetParameter has no"));
}

TEST(TextFormatTest, TextThatIsNoUtf8OrHasANulIsRefusedWhereItStands) {
  EXPECT_EQ(NetError("# caf\xe9\nname: 'caf\xc3\xa9'"), "");
  EXPECT_EQ(NetError("name: 'caf\xe9'"),
            "net.prototxt:1:1: name is \"caf\\xe9\", which is no UTF-8; write the file in UTF-8");
  EXPECT_EQ(NetError("layer {\n  name: 'a\\377'\n}"),
            "net.prototxt:2:3: name is \"a\\xff\", which is no UTF-8; write the file in UTF-8");
  EXPECT_EQ(NetError("layer { bottom: 'a' bottom: 'b\\000' }"),
            "net.prototxt:1:21: bottom is \"b\\x00\", which has a NUL character; remove it");
  EXPECT_THAT(NetError(std::string("name: 'a'\0name: 'b'", 19)), StartsWith("net.prototxt:1:10: "));
}

TEST(TextFormatTest, NumbersThatAreNoneAreRefusedWhereTheyStand) {
  EXPECT_EQ(NetError("layer {\n  loss_weight: 1 loss_weight: nan\n}"),
            "net.prototxt:2:18: loss_weight is nan; it must be a number");
  for (const char* text : {"inf", "-inf", "1e308"}) {
    EXPECT_EQ(NetError(std::string("layer { power_param {\n scale: ") + text + " } }"),
              "net.prototxt:2:2: scale is infinite, or too large for its 32 bits; give a finite "
              "number");
  }
  EXPECT_EQ(NetError("layer { loss_weight: 3e38 }"), "");
}

TEST(TextFormatTest, BrokenTextHasAPlace) {
  EXPECT_THAT(NetError("layer {\n  name: \"x\n}\n"), StartsWith("net.prototxt:2:"));
  EXPECT_THAT(NetError("layer {\n"), StartsWith("net.prototxt:2:1: "));
  EXPECT_THAT(NetError("}"), StartsWith("net.prototxt:1:1: "));
  EXPECT_THAT(NetError("name: 'a' name: 'b'"), HasSubstr("specified multiple times"));
  EXPECT_THAT(NetError("layer { clip_param { min: 0 } }"), HasSubstr("max"));
}

TEST(TextFormatTest, ATextThatEndsTooEarlySaysWhatLacksItsEnd) {
  EXPECT_EQ(NetError("name: 'a'\nlayer {\n  name: 'x'\n  # }\n"),
            "net.prototxt:5:1: the file ends inside \"layer {\" of line 2; a } is missing");
  EXPECT_EQ(NetError("layer { name: 'x' }\nlayer {\ninclude <\nphase: TEST"),
            "net.prototxt:4:12: the file ends inside \"include <\" of line 3; a > is missing");
  // Of a string that does not end, that is said.
  EXPECT_THAT(NetError("layer { name: 'x"), HasSubstr("nexpected end of string"));
}

TEST(TextFormatTest, WhatIsNoNameSaysNothingOfTheFieldBefore) {
  EXPECT_EQ(NetError("layer { name: 'x' 3 }"), "net.prototxt:1:19: Expected identifier, got: 3");
  EXPECT_EQ(NetError("force_backward: true }"), "net.prototxt:1:22: Expected identifier, got: }");
  EXPECT_THAT(NetError("force_backward: 'x'"), HasSubstr("Allowed: true, false."));
}

TEST(TextFormatTest, LocationsOfFields) {
  caffe::NetParameter net;
  const TextLocations locations = ParseText(
      "name: 'a'\n"
      "layer { name: 'x' top: 'p' }\n"
      "layer {\n"
      "  top: 'p'\n"
      "  top: 'q'\n"
      "  data_param {\n"
      "    batch_size: 3\n"
      "  }\n"
      "}\n",
      "n", net);
  const auto find = [&](const std::string& path) { return locations.Find(net, path).ToString(); };
  EXPECT_EQ(find("name"), "n:1:1");
  EXPECT_EQ(find("layer.0.top.0"), "n:2:19");
  EXPECT_EQ(find("layer.1"), "n:3:1");
  EXPECT_EQ(find("layer.1.top.1"), "n:5:3");
  EXPECT_EQ(find("layer.1.data_param.batch_size"), "n:7:5");
  // What the file lacks is where it would have been.
  EXPECT_EQ(find("layer.1.data_param.source"), "n:6:3");
  EXPECT_EQ(find("layer.1.pooling_param.pool"), "n:3:1");
  EXPECT_EQ(find("layer.7.name"), "n");
  EXPECT_EQ(find(""), "n");
  EXPECT_EQ(find("no_such_field"), "n");
}

TEST(TextFormatTest, FilesThatCannotBeRead) {
  caffe::NetParameter net;
  try {
    ReadTextFile("no/such/net.prototxt", net);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "can't read no/such/net.prototxt: No such file or directory");
  }
  try {
    ReadTextFile(testing::TempDir(), net);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("s a directory"));
  }
}

TEST(TextFormatTest, EmptyFileIsAnEmptyMessage) {
  const std::string path = testing::TempDir() + "/text_format_test_empty.prototxt";
  std::ofstream(path).close();
  caffe::NetParameter net;
  net.set_name("cleared");
  ReadTextFile(path, net);
  EXPECT_EQ(net.ByteSizeLong(), 0u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace poseidon
