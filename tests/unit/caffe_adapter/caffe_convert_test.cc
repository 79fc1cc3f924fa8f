#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <set>
#include <thread>

#include "caffe_adapter/convert/convert.h"
#include "caffe_adapter/convert/image.h"
#include "caffe_adapter/data/dataset.h"
#include "caffe_adapter/files/caffemodel.h"
#include "core/error.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> Pixels(const caffe::Datum& datum) {
  std::vector<int> pixels;
  for (const char byte : datum.data()) pixels.push_back(static_cast<uint8_t>(byte));
  return pixels;
}

class CaffeConvertTest : public testing::Test {
 protected:
  CaffeConvertTest() {
    csv_.source = directory_.Path("data.csv");
    csv_.out = directory_.Path("out");
    csv_.shuffle = false;
    files_.source = directory_.path();
    files_.out = csv_.out;
  }

  std::string CsvError(const std::string& text) const {
    directory_.Write("data.csv", text);
    const std::string message = MessageOf<DataError>([&] { ConvertCsv(csv_); });
    EXPECT_FALSE(std::filesystem::exists(csv_.out + "/train_lmdb"));
    return message.substr(std::min(message.size(), directory_.path().size() + 1));
  }

  TemporaryDirectory directory_;
  CsvOptions csv_;
  ConvertOptions files_;
};

TEST_F(CaffeConvertTest, Csv) {
  directory_.Write("data.csv", "label,p,p,p,p\r\n3, 0,1,2,16\n\n0,16,16,0,0\n1,8,8,8,8\n");
  csv_.label_column = 0;
  csv_.max_value = 16;
  csv_.train_records = 2;
  std::vector<int64_t> told;
  csv_.progress = [&told](int64_t done, int64_t all) {
    EXPECT_EQ(all, 3);
    told.push_back(done);
  };
  const ConvertResult result = ConvertCsv(csv_);
  EXPECT_THAT(told, ElementsAre(1, 2, 3));
  ASSERT_EQ(result.databases.size(), 2u);
  EXPECT_EQ(result.databases[0].path, csv_.out + "/train_lmdb");
  EXPECT_EQ(result.databases[0].records, 2);
  EXPECT_EQ(result.databases[1].records, 1);
  EXPECT_THAT(result.databases[0].record_shape, ElementsAre(1, 2, 2));
  const Dataset train(csv_.out + "/train_lmdb");
  EXPECT_EQ(train.Read(0).label(), 3);
  EXPECT_THAT(Pixels(train.Read(0)), ElementsAre(0, 16, 32, 255));
  EXPECT_EQ(train.Read(1).label(), 0);
  EXPECT_THAT(Pixels(Dataset(csv_.out + "/test_lmdb").Read(0)), ElementsAre(128, 128, 128, 128));
}

TEST_F(CaffeConvertTest, CsvShuffledHasTheSameRecordsInTheSameOrderEachTime) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "7," + std::to_string(i) + "\n";
  directory_.Write("data.csv", text);
  csv_.shuffle = true;
  csv_.replace = true;
  csv_.train_records = 60;
  std::vector<int> first;
  for (int run = 0; run < 2; ++run) {
    ConvertCsv(csv_);
    std::vector<int> labels;
    for (const char* name : {"/train_lmdb", "/test_lmdb"}) {
      const Dataset dataset(csv_.out + name);
      for (int64_t i = 0; i < dataset.size(); ++i) labels.push_back(dataset.Read(i).label());
    }
    EXPECT_EQ(std::set<int>(labels.begin(), labels.end()).size(), 100u);
    EXPECT_FALSE(std::is_sorted(labels.begin(), labels.end()));
    if (run == 0) first = labels;
    EXPECT_EQ(labels, first);
  }
}

TEST_F(CaffeConvertTest, CsvThatCannotBe) {
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertCsv(csv_); }), HasSubstr("No such file"));
  EXPECT_EQ(CsvError(""), "data.csv: has no images");
  EXPECT_EQ(CsvError("1,2,3,4,5\n1,2,3,4\n"), "data.csv:2: has 4 columns; the lines before have 5");
  EXPECT_EQ(CsvError("1,2,x,4,5\n"), "data.csv:1: column 2 is \"x\", no number");
  EXPECT_EQ(CsvError("1,2,,4,5\n"), "data.csv:1: column 2 is \"\", no number");
  EXPECT_EQ(CsvError("1,2,3,1\n"),
            "data.csv:1: has 3 pixels beside the label; expected a square number");
  EXPECT_THAT(CsvError("1,2,3,300,1\n"), HasSubstr("data.csv:1: a pixel is 300"));
  EXPECT_THAT(CsvError("1,2,3,4,1.5\n"), HasSubstr("the label in column 4 is 1.5"));
  csv_.label_column = 9;
  EXPECT_THAT(CsvError("1,2,3,4,1\n"), HasSubstr("no column 9 for the label"));
  csv_.label_column = -1;
  csv_.train_records = 2;
  EXPECT_THAT(CsvError("1,2,3,4,1\n"), HasSubstr("has 1 images, fewer than the 2 to train"));
}

// It would be tested on what it was trained on.
TEST_F(CaffeConvertTest, CsvWithoutATestPartLeavesNoOldOne) {
  directory_.Write("data.csv", "1,2\n1,3\n1,4\n");
  const auto size = [&](const char* name) { return Dataset(csv_.out + name).size(); };
  csv_.train_records = 2;
  ConvertCsv(csv_);
  csv_.train_records = 0;
  const std::string test = csv_.out + "/test_lmdb";
  std::filesystem::rename(csv_.out + "/train_lmdb", csv_.out + "/train");
  EXPECT_EQ(MessageOf<DataError>([&] { ConvertCsv(csv_); }),
            test + " exists already; remove it, or replace it (--replace)");
  EXPECT_FALSE(std::filesystem::exists(csv_.out + "/train_lmdb"));
  csv_.replace = true;
  directory_.Write("out/test_lmdb/notes", "mine");
  EXPECT_THAT(MessageOf<ConfigError>([&] { ConvertCsv(csv_); }), HasSubstr("it has \"notes\""));
  EXPECT_EQ(size("/test_lmdb"), 1);
  std::filesystem::remove(test + "/notes");
  EXPECT_EQ(ConvertCsv(csv_).databases.size(), 1u);
  EXPECT_EQ(size("/train_lmdb"), 3);
  EXPECT_FALSE(std::filesystem::exists(test));
  ConvertCsv(csv_);  // there is none to remove
}

TEST_F(CaffeConvertTest, TheDigits) {
  csv_.source = "configs/data/digits.csv";
  csv_.max_value = 16;
  csv_.scale_height = csv_.scale_width = 28;
  csv_.train_records = 1500;
  csv_.shuffle = true;
  const ConvertResult result = ConvertCsv(csv_);
  EXPECT_EQ(result.databases[0].records, 1500);
  EXPECT_EQ(result.databases[1].records, 297);
  EXPECT_THAT(result.databases[1].record_shape, ElementsAre(1, 28, 28));
}

TEST(ImageTest, ScalingUpInterpolatesBetweenPixelCenters) {
  const Image scaled = ScaleBilinear({1, 2, {0, 100}}, 2, 4);
  EXPECT_THAT(scaled.pixels, ElementsAre(0, 25, 75, 100, 0, 25, 75, 100));
  EXPECT_THAT(ScaleBilinear({2, 2, {1, 2, 3, 4}}, 2, 2).pixels, ElementsAre(1, 2, 3, 4));
  // A plane stays a plane away from the border.
  Image plane{8, 8, {}};
  for (int i = 0; i < 64; ++i) plane.pixels.push_back(static_cast<float>(i / 8 * 3 + i % 8));
  const Image large = ScaleBilinear(plane, 28, 28);
  for (int64_t y = 2; y < 26; ++y) {
    for (int64_t x = 2; x < 26; ++x) {
      const double row = (static_cast<double>(y) + 0.5) * 8 / 28 - 0.5;
      const double column = (static_cast<double>(x) + 0.5) * 8 / 28 - 0.5;
      EXPECT_NEAR(large.pixels[y * 28 + x], 3 * row + column, 1e-4);
    }
  }
}

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

TEST_F(CaffeConvertTest, Mnist) {
  const std::string images = BigEndian(2051) + BigEndian(2) + BigEndian(2) + BigEndian(3);
  const std::string labels = BigEndian(2049) + BigEndian(2);
  for (const char* set : {"train", "t10k"}) {
    directory_.Write(std::string(set) + "-images-idx3-ubyte", images + "abcdefghijkl");
    directory_.Write(std::string(set) + "-labels-idx1-ubyte", labels + "\x05\x09");
  }
  const ConvertResult result = ConvertMnist(files_);
  EXPECT_EQ(result.databases[1].records, 2);
  EXPECT_THAT(result.databases[0].record_shape, ElementsAre(1, 2, 3));
  const caffe::Datum record = Dataset(files_.out + "/test_lmdb").Read(1);
  EXPECT_EQ(record.data(), "ghijkl");
  EXPECT_EQ(record.label(), 9);

  files_.replace = true;
  const auto error = [&] { return MessageOf<DataError>([&] { ConvertMnist(files_); }); };
  directory_.Write("train-images-idx3-ubyte", images + "abcdefghijk");
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte: truncated after 27 bytes"));
  directory_.Write("train-images-idx3-ubyte", images + "abcdefghijklm");
  EXPECT_THAT(error(), HasSubstr("longer than its header says, 28 bytes"));
  directory_.Write("train-images-idx3-ubyte", labels + "\x05\x09");
  EXPECT_THAT(error(), HasSubstr("starts with 2049; an idx file of unsigned bytes with 3 axes "
                                 "starts with 2051"));
  std::filesystem::rename(directory_.Path("train-images-idx3-ubyte"),
                          directory_.Path("train-images-idx3-ubyte.gz"));
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte.gz: gunzip it first"));
  EXPECT_EQ(Dataset(files_.out + "/test_lmdb").size(), 2);  // what was there is still there
}

// A database may take hours to read.
TEST_F(CaffeConvertTest, WhereTheMeanGoesIsLookedAtBeforeTheDatabase) {
  EXPECT_EQ(MessageOf<ConfigError>([&] { ComputeMean("/there/is/none", directory_.path()); }),
            "can't write " + directory_.path() + ": it is a directory; name a file");
}

// Whoever trains on a database without records finds out only then.
TEST_F(CaffeConvertTest, FilesWithoutImagesAreRefused) {
  for (int i = 1; i <= 5; ++i) directory_.Write("data_batch_" + std::to_string(i) + ".bin", "");
  directory_.Write("test_batch.bin", "");
  const auto cifar10 = [&] { return MessageOf<DataError>([&] { ConvertCifar10(files_); }); };
  EXPECT_EQ(cifar10(), directory_.path() + "/data_batch_1.bin to data_batch_5.bin have no images");
  directory_.Write("data_batch_5.bin", std::string(3073, '\x01'));
  EXPECT_EQ(cifar10(), directory_.path() + "/test_batch.bin has no images");
  EXPECT_FALSE(std::filesystem::exists(files_.out + "/test_lmdb"));

  files_.replace = true;
  directory_.Write("train-images-idx3-ubyte",
                   BigEndian(2051) + BigEndian(0) + BigEndian(2) + BigEndian(3));
  directory_.Write("train-labels-idx1-ubyte", BigEndian(2049) + BigEndian(0));
  EXPECT_EQ(MessageOf<DataError>([&] { ConvertMnist(files_); }),
            directory_.path() + "/train-images-idx3-ubyte: has no images");
}

// So that it can be repeated.
TEST_F(CaffeConvertTest, AConversionThatFailsLeavesNoDatabase) {
  const std::string images = BigEndian(2051) + BigEndian(1) + BigEndian(1) + BigEndian(1);
  const std::string labels = BigEndian(2049) + BigEndian(1) + "\x05";
  const std::string batch = std::string(1, '\x05') + std::string(3072, '\x01');
  const auto left = [&] {
    return std::distance(std::filesystem::directory_iterator(files_.out),
                         std::filesystem::directory_iterator());
  };
  directory_.Write("train-images-idx3-ubyte", images + "a");
  directory_.Write("train-labels-idx1-ubyte", labels);
  directory_.Write("t10k-images-idx3-ubyte", images);
  directory_.Write("t10k-labels-idx1-ubyte", labels);
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertMnist(files_); }),
              HasSubstr("t10k-images-idx3-ubyte: truncated"));
  EXPECT_EQ(left(), 0);
  for (int i = 1; i <= 5; ++i) {
    directory_.Write("data_batch_" + std::to_string(i) + ".bin", batch);
  }
  directory_.Write("test_batch.bin", batch + "\x0a");
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertCifar10(files_); }),
              HasSubstr("test_batch.bin: label 10"));
  EXPECT_EQ(left(), 0);
  directory_.Write("test_batch.bin", batch);
  std::string message;
  std::thread([&] {
    constexpr uint32_t kMeanBytes = 4 * 3072;  // as floats; LMDB does not write by this call
    BreakCall({.number = SYS_write, .error = ENOSPC, .argument = 2, .least = kMeanBytes});
    message = MessageOf<Error>([&] { ConvertCifar10(files_); });
  }).join();
  EXPECT_THAT(message, HasSubstr("can't write " + files_.out + "/mean.binaryproto"));
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_EQ(left(), 0) << "the databases were ready, and have not got their names";
  directory_.Write("out/mean.binaryproto/file", "");  // seen before the first batch is read
  files_.replace = true;
  EXPECT_THROW(ConvertCifar10(files_), ConfigError);
  EXPECT_EQ(left(), 1);
}

TEST_F(CaffeConvertTest, WhatHindersTheTestSetIsSaidBeforeTheTrainingSetIsRead) {
  const std::string images = BigEndian(2051) + BigEndian(1) + BigEndian(1) + BigEndian(1);
  const std::string labels = BigEndian(2049) + BigEndian(1) + "\x05";
  directory_.Write("train-images-idx3-ubyte", images);  // truncated, as whoever reads it finds
  directory_.Write("train-labels-idx1-ubyte", labels);
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertMnist(files_); }),
              HasSubstr("t10k-images-idx3-ubyte: No such file"));
  directory_.Write("t10k-images-idx3-ubyte", images + "a");
  directory_.Write("t10k-labels-idx1-ubyte", labels);
  directory_.Write("out/test_lmdb/data.mdb", "");
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertMnist(files_); }),
              HasSubstr("test_lmdb exists already"));
  for (int i = 1; i <= 5; ++i) directory_.Write("data_batch_" + std::to_string(i) + ".bin", "\x0a");
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertCifar10(files_); }),
              HasSubstr("test_batch.bin: No such file"));
}

TEST_F(CaffeConvertTest, Cifar10) {
  const auto record = [](char label, char pixel) {
    return std::string(1, label) + std::string(1024, pixel) + std::string(2048, '\x04');
  };
  for (int i = 1; i <= 5; ++i) {
    directory_.Write("data_batch_" + std::to_string(i) + ".bin",
                     record(static_cast<char>(i), '\x00') + record('\x00', '\xc8'));
  }
  directory_.Write("test_batch.bin", record('\x09', '\x01'));
  std::vector<std::pair<int64_t, int64_t>> told;
  files_.progress = [&told](int64_t done, int64_t all) { told.emplace_back(done, all); };
  const ConvertResult result = ConvertCifar10(files_);
  ASSERT_EQ(told.size(), 11u);
  EXPECT_EQ(told.front(), (std::pair<int64_t, int64_t>(1, 11)));
  EXPECT_EQ(told.back(), (std::pair<int64_t, int64_t>(11, 11)));
  EXPECT_EQ(result.databases[0].records, 10);
  EXPECT_EQ(result.databases[1].records, 1);
  EXPECT_THAT(result.databases[0].record_shape, ElementsAre(3, 32, 32));
  EXPECT_EQ(Dataset(files_.out + "/train_lmdb").Read(8).label(), 5);
  caffe::BlobProto mean;
  ReadBinaryFile(result.other_files.at(0), mean);
  EXPECT_THAT(BlobProtoShape(mean), ElementsAre(1, 3, 32, 32));
  EXPECT_EQ(ToValues(mean)[0], 100);
  EXPECT_EQ(ToValues(mean)[3071], 4);

  // Whoever trains on other databases may need it.
  std::filesystem::remove_all(files_.out + "/train_lmdb");
  std::filesystem::remove_all(files_.out + "/test_lmdb");
  directory_.Write("data_batch_3.bin", record('\x0a', '\x01'));
  EXPECT_EQ(MessageOf<DataError>([&] { ConvertCifar10(files_); }),
            files_.out + "/mean.binaryproto exists already; remove it, or replace it (--replace)");

  files_.replace = true;
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertCifar10(files_); }),
              HasSubstr("data_batch_3.bin: label 10 before record 4; expected 0 to 9"));
  directory_.Write("data_batch_3.bin", record('\x01', '\x01').substr(0, 3000));
  EXPECT_THAT(MessageOf<DataError>([&] { ConvertCifar10(files_); }), HasSubstr("truncated"));
}

}  // namespace
}  // namespace poseidon
