#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "caffe_adapter/data/data_order.h"
#include "caffe_adapter/data/transform.h"
#include "caffe_adapter/files/caffemodel.h"
#include "core/random.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Pixels 0, 1, 2, ... in channel, row, column order.
caffe::Datum Counting(const Shape& shape) {
  caffe::Datum datum;
  datum.set_channels(static_cast<int>(shape[0]));
  datum.set_height(static_cast<int>(shape[1]));
  datum.set_width(static_cast<int>(shape[2]));
  std::string pixels;
  for (int64_t i = 0; i < Count(shape); ++i) pixels += static_cast<char>(i);
  datum.set_data(pixels);
  return datum;
}

std::vector<float> Apply(const caffe::TransformationParameter& parameter, caffe::Phase phase,
                         const Shape& shape, uint64_t seed = 1) {
  const Transformer transformer(parameter, phase, shape);
  std::vector<float> out(static_cast<size_t>(Count(transformer.output_shape())));
  transformer.Apply(Counting(shape), seed, out);
  return out;
}

TEST(CaffeTransformTest, ScaleAndMeanValues) {
  caffe::TransformationParameter parameter;
  parameter.set_scale(0.5);
  EXPECT_THAT(Apply(parameter, caffe::TRAIN, {2, 1, 2}), ElementsAre(0, 0.5, 1, 1.5));
  parameter.add_mean_value(2);
  EXPECT_THAT(Apply(parameter, caffe::TRAIN, {2, 1, 2}), ElementsAre(-1, -0.5, 0, 0.5));
  parameter.add_mean_value(4);
  EXPECT_THAT(Apply(parameter, caffe::TRAIN, {2, 1, 2}), ElementsAre(-1, -0.5, -1, -0.5));
}

TEST(CaffeTransformTest, BytesAreUnsigned) {
  EXPECT_EQ(Apply({}, caffe::TEST, {1, 16, 16}).back(), 255);
}

TEST(CaffeTransformTest, CentralCropInTest) {
  caffe::TransformationParameter parameter;
  parameter.set_crop_size(2);
  // Of 5 rows of 4: rows 1 and 2 of columns 1 and 2.
  EXPECT_THAT(Apply(parameter, caffe::TEST, {1, 5, 4}), ElementsAre(5, 6, 9, 10));
  // As in Caffe, whether to mirror is random in tests, too.
  parameter.set_mirror(true);
  std::map<std::vector<float>, int> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    ++seen[Apply(parameter, caffe::TEST, {1, 5, 4}, seed)];
  }
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NEAR((seen[{6, 5, 10, 9}]), 100, 30);
}

TEST(CaffeTransformTest, CroppedRecordsMayDifferInSize) {
  caffe::TransformationParameter parameter;
  parameter.set_crop_size(2);
  parameter.add_mean_value(1);
  const Transformer transformer(parameter, caffe::TEST, {1, 5, 4});
  EXPECT_EQ(transformer.ShapeError({1, 2, 9}), "");
  EXPECT_EQ(transformer.ShapeError({1, 1, 9}), "is 1 x 1 x 9, smaller than crop_size, 2");
  EXPECT_EQ(transformer.ShapeError({3, 5, 4}), "is 3 x 5 x 4, but the first record has 1 channels");
  std::vector<float> out(4);
  transformer.Apply(Counting({1, 2, 6}), 1, out);
  EXPECT_THAT(out, ElementsAre(1, 2, 7, 8));
  EXPECT_EQ(Transformer({}, caffe::TEST, {1, 5, 4}).ShapeError({1, 5, 5}),
            "is 1 x 5 x 5, but the first record 1 x 5 x 4");
}

TEST(CaffeTransformTest, RandomCropAndMirrorInTrain) {
  caffe::TransformationParameter parameter;
  parameter.set_crop_size(2);
  parameter.set_mirror(true);
  std::map<std::vector<float>, int> seen;
  constexpr int kDraws = 2400;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<float> crop = Apply(parameter, caffe::TRAIN, {1, 3, 4}, seed);
    EXPECT_EQ(crop, Apply(parameter, caffe::TRAIN, {1, 3, 4}, seed));
    const float left = std::min(crop[0], crop[1]);
    EXPECT_EQ(std::abs(crop[0] - crop[1]), 1);
    EXPECT_EQ(std::min(crop[2], crop[3]), left + 4);
    ++seen[crop];
  }
  // 2 rows x 3 columns x mirrored or not, each about 200 times.
  EXPECT_EQ(seen.size(), 12u);
  for (const auto& [crop, times] : seen) EXPECT_NEAR(times, kDraws / 12, 70);
}

TEST(CaffeTransformTest, MeanFileIsCroppedAlong) {
  const TemporaryDirectory directory;
  caffe::TransformationParameter parameter;
  parameter.set_mean_file(directory.Path("mean.binaryproto"));
  parameter.set_crop_size(2);
  parameter.set_mirror(true);
  caffe::BlobProto mean;
  mean.set_num(1);
  mean.set_channels(1);
  mean.set_height(3);
  mean.set_width(3);
  for (int i = 0; i < 9; ++i) mean.add_data(static_cast<float>(i));
  WriteBinaryFile(parameter.mean_file(), mean);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_THAT(Apply(parameter, caffe::TRAIN, {1, 3, 3}, seed), Each(0));
  }
  EXPECT_THAT(MessageOf<ConfigError>([&] {
                Apply(parameter, caffe::TRAIN, {1, 4, 3});
              }),
              HasSubstr("is 1 x 3 x 3, but the records are 1 x 4 x 3"));
  directory.Write("mean.binaryproto", "\xff\xff\xff");
  EXPECT_THAT(MessageOf<DataError>([&] {
                Apply(parameter, caffe::TRAIN, {1, 3, 3});
              }),
              HasSubstr("mean.binaryproto: is no .binaryproto or is truncated or corrupt"));
}

TEST(CaffeTransformTest, ParametersThatDoNotFit) {
  const auto error_of = [](auto change) {
    caffe::TransformationParameter parameter;
    change(parameter);
    return MessageOf<ConfigError>([&] {
      Transformer(parameter, caffe::TRAIN, {3, 8, 9}, Location{"net", 4, 2});
    });
  };
  EXPECT_EQ(error_of([](auto& parameter) { parameter.set_crop_size(9); }),
            "net:4:2: crop_size is 9, larger than the records, 3 x 8 x 9");
  EXPECT_EQ(error_of([](auto& parameter) {
              parameter.add_mean_value(1);
              parameter.add_mean_value(1);
            }),
            "net:4:2: there are 2 mean_value entries; expected 1 or one for each of 3 channels");
  EXPECT_THAT(error_of([](auto& parameter) {
                parameter.add_mean_value(1);
                parameter.set_mean_file("x");
              }),
              HasSubstr("not both"));
  caffe::TransformationParameter both;
  both.set_force_gray(true);
  EXPECT_EQ(ChannelsOf(both), ImageChannels::kGray);
  both.set_force_color(true);
  EXPECT_THAT(MessageOf<ConfigError>([&] {
                ChannelsOf(both, Location{"net", 4, 2});
              }),
              HasSubstr("net:4:2: give force_color or force_gray, not both"));
}

// All records of some iterations, in the order one worker with all the samples would read them.
std::vector<int64_t> Read(int64_t workers, int64_t batch, int64_t iterations, bool shuffle) {
  std::vector<DataOrder> orders(static_cast<size_t>(workers),
                                DataOrder(103, workers, batch, shuffle, 5));
  std::vector<int64_t> records;
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    for (int64_t rank = 0; rank < workers; ++rank) {
      for (int64_t i = 0; i < batch; ++i) {
        DataOrder& order = orders[static_cast<size_t>(rank)];
        records.push_back(order.Record(order.Position(iteration, rank, i)));
      }
    }
  }
  return records;
}

TEST(CaffeDataOrderTest, WorkersReadWhatOneWithAllTheirSamplesReads) {
  for (const bool shuffle : {false, true}) {
    EXPECT_EQ(Read(4, 16, 20, shuffle), Read(1, 64, 20, shuffle));
    EXPECT_EQ(Read(3, 5, 20, shuffle), Read(15, 1, 20, shuffle));
  }
}

TEST(CaffeDataOrderTest, EachEpochReadsEachRecordOnce) {
  const std::vector<int64_t> records = Read(2, 1, 3 * 103, true);  // 6 epochs
  std::set<std::vector<int64_t>> epochs;
  for (auto begin = records.begin(); begin != records.end(); begin += 103) {
    EXPECT_EQ(std::set<int64_t>(begin, begin + 103).size(), 103u);
    epochs.insert(std::vector<int64_t>(begin, begin + 103));
  }
  EXPECT_EQ(epochs.size(), 6u);
}

// Any number of workers at any time, also one who is alone.
TEST(CaffeDataOrderTest, TenuresGoOnWhereTheOnesBeforeStopped) {
  constexpr int64_t kBatch = 3;
  DataShare share{.place = 0, .tenures = {}};
  int64_t iteration = 0;
  int64_t next = 0;
  for (const int64_t workers : {4, 3, 1, 5, 2}) {
    share.tenures.push_back({iteration, workers});
    DataOrder order(103, 4, kBatch, true, 5);
    order.SetShare(share);
    for (const int64_t end = iteration + 7; iteration < end; ++iteration) {
      for (int64_t place = 0; place < workers; ++place) {
        for (int64_t i = 0; i < kBatch; ++i) {
          ASSERT_EQ(order.Position(iteration, place, i), next++) << workers << " workers";
        }
      }
    }
  }
}

// However the batch is divided, and whenever anew, each sample is read once.
TEST(CaffeDataOrderTest, PartsOfABatchAreThatBatch) {
  constexpr int64_t kAll = 24;
  Random random(7);
  int64_t next = 0;
  for (int64_t iteration = 0; iteration < 50; ++iteration) {
    DataShare share{.place = 0, .tenures = {{0, 4}}, .parts = {1, 1, 1, 1}};
    for (int64_t sample = 4; sample < kAll; ++sample) ++share.parts[random.Below(4)];
    for (int64_t place = 0; place < 4; ++place) {
      DataOrder order(103, 4, share.parts[static_cast<size_t>(place)], true, 5);
      order.SetShare(share);
      for (int64_t i = 0; i < share.parts[static_cast<size_t>(place)]; ++i) {
        ASSERT_EQ(order.Position(iteration, place, i), next++) << iteration;
      }
    }
  }
}

TEST(CaffeDataOrderTest, ReplicasReadAsSoManyWorkersWould) {
  const DataShare share = ShareOfReplica({.place = 2, .tenures = {{0, 4}, {10, 3}}}, 1, 2);
  EXPECT_EQ(share.place, 5);
  EXPECT_EQ(BatchesBefore(share, 12), 2 * (4 * 10 + 3 * 2));
}

// With which losses are the same whichever parts the workers have: means of 2 and of 4 over 5 and 3
// of 8 samples.
TEST(CaffeDataOrderTest, TheMeanOfWeightedPartsIsThatOfAllSamples) {
  const std::vector<int64_t> parts = {5, 3};
  EXPECT_EQ((ShareOfSamples(parts, 0) * 2 + ShareOfSamples(parts, 1) * 4) / 2,
            (5 * 2 + 3 * 4) / 8.0);
  EXPECT_EQ(ShareOfSamples({4, 4, 4}, 2), 1);
  EXPECT_EQ(ShareOfSamples({}, 2), 1);
}

TEST(CaffeDataOrderTest, UnshuffledIsDatabaseOrder) {
  const std::vector<int64_t> records = Read(1, 1, 206, false);
  for (int64_t i = 0; i < 206; ++i) EXPECT_EQ(records[static_cast<size_t>(i)], i % 103);
}

TEST(CaffeDataOrderTest, FilesAreReadOneAfterTheOther) {
  const std::vector<int64_t> files = {5, 1, 17, 8};
  DataOrder order({0, files}, 1, 1, true, 3);
  std::set<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> records;
    std::vector<int> entered;
    for (int64_t i = 0; i < 31; ++i) {
      records.push_back(order.Record(epoch * 31 + i));
      const int64_t record = records.back();
      const int file = record < 5 ? 0 : record < 6 ? 1 : record < 23 ? 2 : 3;
      if (entered.empty() || entered.back() != file) entered.push_back(file);
    }
    EXPECT_EQ(entered.size(), 4u) << "each file's records follow each other";
    EXPECT_EQ(std::set<int64_t>(records.begin(), records.end()).size(), 31u);
    epochs.insert(records);
  }
  EXPECT_EQ(epochs.size(), 20u);
}

TEST(CaffeDataOrderTest, ASingleFileIsReadAsADatabase) {
  DataOrder file({.files = {10}}, 1, 1, true, 3);
  DataOrder database(10, 1, 1, true, 3);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(file.Record(i), database.Record(i)) << i;
}

TEST(CaffeDataOrderTest, WhatReadsTheSameRecordsTogether) {
  const auto order = [](OrderedRecords of, bool shuffle = true, int64_t batch = 2) {
    return DataOrder(std::move(of), 1, batch, shuffle, 3);
  };
  const DataOrder database = order({10});
  const DataOrder cut = order({.files = {4, 6}});
  EXPECT_TRUE(database.ReadsTheSame(order({.files = {10}})));
  EXPECT_TRUE(cut.ReadsTheSame(order({.files = {4, 6}})));
  for (const DataOrder& other : {database, order({.files = {6, 4}})}) {
    EXPECT_TRUE(cut.ReadsSideBySide(other));
    EXPECT_FALSE(cut.ReadsTheSame(other));
    EXPECT_FALSE(other.ReadsTheSame(cut));
  }
  EXPECT_TRUE(order({10}, false).ReadsTheSame(order({.files = {4, 6}}, false)));
  EXPECT_FALSE(database.ReadsTheSame(order({10}, false)));
  for (const DataOrder& other :
       {order({11}), order({10}, true, 3), order({10, {}, DrawnRecords{.first_kind = 5}})}) {
    EXPECT_FALSE(database.ReadsSideBySide(other));
    EXPECT_FALSE(database.ReadsTheSame(other));
  }
}

TEST(CaffeDataOrderTest, SkippedRecordsComeInTheNextEpoch) {
  for (const bool shuffle : {false, true}) {
    DataOrder whole(7, 1, 1, shuffle, 3);
    DataOrder order({7}, 1, 1, shuffle, 3, 4);
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(order.Record(i), whole.Record(i + 4));
  }
}

// The order must never change: it is part of what a seed means.
TEST(CaffeDataOrderTest, TheGeneratorIsSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);  // the reference implementation's numbers
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
  std::vector<int> values = {0, 1, 2, 3, 4, 5, 6, 7};
  Shuffle(values, 42);
  EXPECT_THAT(values, ElementsAre(3, 1, 6, 2, 4, 0, 7, 5));
}

}  // namespace
}  // namespace poseidon
