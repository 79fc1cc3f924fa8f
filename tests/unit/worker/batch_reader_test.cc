#include "worker/engine/batch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <latch>
#include <set>
#include <thread>

#include "caffe_adapter/convert/dataset_writer.h"
#include "core/error.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/temporary_directory.h"
#include "worker/engine/patient_read.h"

namespace poseidon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kRecords = 30;
constexpr int64_t kBadRecord = 22;

// Record i is of 4 x 4 pixels, pixel p of value i + p, and has label i.
class BatchReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "batch_reader_test." + std::to_string(getpid());
    Write(false);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void Write(bool with_bad_record) {
    DatasetWriter writer(path_, DatasetWriter::Existing::kReplace);
    for (int64_t i = 0; i < kRecords; ++i) {
      caffe::Datum datum;
      datum.set_channels(1);
      datum.set_height(with_bad_record && i == kBadRecord ? 2 : 4);
      datum.set_width(4);
      datum.set_label(static_cast<int32_t>(i));
      for (int64_t p = 0; p < datum.height() * 4; ++p) {
        datum.mutable_data()->push_back(static_cast<char>(i + p));
      }
      writer.Append(datum);
    }
    writer.Finish();
  }

  LayerDescription Layer(int64_t batch, int crop = 0) const {
    LayerDescription layer;
    layer.parameter.set_name("data");
    layer.parameter.set_type("Data");
    layer.parameter.set_phase(caffe::TRAIN);
    layer.parameter.mutable_data_param()->set_source(path_);
    layer.parameter.mutable_data_param()->set_backend(caffe::DataParameter::LMDB);
    layer.parameter.mutable_transform_param()->set_mirror(crop > 0);
    layer.parameter.mutable_transform_param()->set_crop_size(crop);
    const int64_t extent = crop > 0 ? crop : 4;
    layer.tops = {{"data", {batch, 1, extent, extent}}, {"label", {batch}}};
    return layer;
  }

  std::string path_;
};

TEST_F(BatchReaderTest, ReadsInDatabaseOrderAndStartsAgain) {
  BatchReader reader(Layer(7), {});
  for (int64_t iteration = 0; iteration < 13; ++iteration) {
    const Batch& batch = reader.Read(iteration, iteration + 1);
    for (int64_t i = 0; i < 7; ++i) {
      const int64_t record = (iteration * 7 + i) % kRecords;
      ASSERT_EQ(batch.records[i], record);
      ASSERT_EQ(batch.tops[1][i], static_cast<float>(record));
      for (int64_t p = 0; p < 16; ++p) {
        ASSERT_EQ(batch.tops[0][i * 16 + p], static_cast<float>(record + p));
      }
    }
    EXPECT_EQ(reader.DescribeSample(iteration, 0),
              "record " + std::to_string(iteration * 7 % kRecords) + " of " + path_);
  }
}

TEST_F(BatchReaderTest, ReadsWhatIsAskedWhateverWasReadAhead) {
  BatchReader reader(Layer(3), {});
  for (const int64_t iteration : {4, 0, 7, 7, 1}) {
    EXPECT_EQ(reader.Read(iteration, 4).tops[1][2], static_cast<float>(3 * iteration + 2));
  }
}

TEST_F(BatchReaderTest, WhatWasReadAheadIsNoPartOfAnotherShare) {
  BatchReader reader(Layer(2), {.rank = 2, .workers = 3});
  EXPECT_EQ(reader.Read(4, 5).records[0], (4 * 3 + 2) * 2 % kRecords);
  // Worker 1 is lost in iteration 5: this one is the second of two.
  reader.SetShare({.place = 1, .tenures = {{0, 3}, {5, 2}}});
  EXPECT_EQ(reader.Read(5, 6).records[0], (5 * 3 + 1) * 2 % kRecords);
  EXPECT_EQ(reader.Read(6, 7).records[0], (5 * 3 + 2 + 1) * 2 % kRecords);
}

TEST_F(BatchReaderTest, WorkersSplitTheBatchOfOneWorker) {
  for (const bool shuffle : {false, true}) {
    BatchReader whole(Layer(8, 3), {.rank = 0, .workers = 1, .shuffle = shuffle, .seed = 9});
    std::vector<std::unique_ptr<BatchReader>> parts;
    for (int rank = 0; rank < 4; ++rank) {
      parts.push_back(std::make_unique<BatchReader>(
          Layer(2, 3),
          BatchReaderOptions{.rank = rank, .workers = 4, .shuffle = shuffle, .seed = 9}));
    }
    std::multiset<int64_t> epoch;
    for (int64_t iteration = 0; iteration < 9; ++iteration) {
      const Batch& batch = whole.Read(iteration, iteration + 1);
      std::vector<float> joined_data;
      std::vector<int64_t> joined_records;
      for (const auto& part : parts) {
        const Batch& piece = part->Read(iteration, iteration + 1);
        joined_data.insert(joined_data.end(), piece.tops[0].begin(), piece.tops[0].end());
        joined_records.insert(joined_records.end(), piece.records.begin(), piece.records.end());
      }
      EXPECT_EQ(joined_records, batch.records);
      EXPECT_THAT(joined_data, ElementsAreArray(batch.tops[0]))
          << "a sample's crop and mirror depend on who reads it";
      for (int64_t i = 0; i < 8 && iteration * 8 + i < kRecords; ++i) {
        epoch.insert(batch.records[i]);
      }
    }
    EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), kRecords);
    EXPECT_EQ(epoch.size(), kRecords) << "a record was read twice in an epoch";
  }
}

TEST_F(BatchReaderTest, RandSkipLeavesOutTheSameFirstRecordsOnAllWorkers) {
  std::set<int64_t> firsts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    LayerDescription layer = Layer(2);
    layer.parameter.mutable_data_param()->set_rand_skip(5);
    BatchReader first(layer, {.rank = 0, .workers = 2, .shuffle = false, .seed = seed});
    BatchReader second(layer, {.rank = 1, .workers = 2, .shuffle = false, .seed = seed});
    const int64_t begin = first.Read(0, 1).records[0];
    EXPECT_EQ(second.Read(0, 1).records[0], begin + 2);
    EXPECT_EQ(first.Read(1, 2).records[1], begin + 5);
    firsts.insert(begin);
  }
  EXPECT_EQ(firsts, (std::set<int64_t>{0, 1, 2, 3, 4}));
}

// A file server that does not answer any more, for who has to wait for it.
class HangingDevice : public EngineDevice {
 public:
  void Answer() { answers_.count_down(); }

  std::optional<int> cuda_device() const override { return std::nullopt; }
  DeviceMemory AllocatePinned(size_t bytes) override {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {memory, memory->data()};
  }
  DeviceMemory Allocate(size_t bytes) override { return AllocatePinned(bytes); }
  std::unique_ptr<DeviceEvent> MakeEvent() override { return std::make_unique<DeviceEvent>(); }
  void RecordComputed(DeviceEvent&) override {}
  void Copy(void*, const void*, size_t, const DeviceEvent&, DeviceEvent&) override {}
  void Await(const DeviceEvent&) override {}
  void WaitOnHost(const DeviceEvent&) override { answers_.wait(); }

 private:
  std::latch answers_{1};
};

TEST_F(BatchReaderTest, ABatchThatIsWaitedForIsToldOfEverLessOften) {
  constexpr int kTold = 4;
  const LogLines log;
  HangingDevice device;
  BatchReader reader(Layer(7), {.patience = std::chrono::milliseconds(10)}, &device);
  std::thread answer([&] {
    while (log.lines().size() < kTold) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    device.Answer();
  });
  reader.Read(0, 1);
  answer.join();
  const std::string about = "layer \"data\" has been reading a batch for ";
  const std::vector<std::string> lines = log.lines();
  for (int i = 0; i < kTold; ++i) {
    EXPECT_THAT(
        lines[i],
        HasSubstr(about + (std::vector<std::string>{"0.01", "0.02", "0.04", "0.08"}[i]) + " s:"));
  }
}

TEST_F(BatchReaderTest, AnErrorComesWithItsBatch) {
  Write(true);
  BatchReader reader(Layer(5), {});
  for (int64_t iteration = 0; iteration < 4; ++iteration) reader.Read(iteration, iteration + 1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THAT([&] { reader.Read(4, 5); },
                ThrowsMessage<DataError>(HasSubstr("record 22 (key \"00000022\"): is 1 x 2 x 4")));
  }
  EXPECT_EQ(reader.Read(5, 4).tops[1][0], 25.0F) << "read ahead, an error of a later batch waits";
  EXPECT_EQ(reader.Read(0, 1).tops[1][0], 0.0F);
}

TEST(FingerprintPatienceTest, WhatCanNotBeReadForAMomentIsReadAgainBeforeTraining) {
  const TemporaryDirectory directory;
  const std::string image = directory.Path("cat.jpg");
  std::filesystem::create_symlink("/proc/self/mem", image);  // whose first byte can't be read
  LayerDescription layer;
  layer.parameter.set_name("data");
  layer.parameter.set_type("WindowData");  // which reads the list alone when it is opened
  caffe::WindowDataParameter& windows = *layer.parameter.mutable_window_data_param();
  windows.set_source(directory.Write("list", "# 0\n" + image + "\n3 4 4\n1\n1 1 0 0 3 3\n"));
  windows.set_fg_fraction(1);
  layer.tops = {{"data", {1, 3, 4, 4}}, {"label", {1}}};
  const LogLines log;
  auto made = std::async(std::launch::async, [&] {
    return std::make_unique<BatchReader>(layer, BatchReaderOptions());
  });
  while (log.lines().empty()) {
    if (made.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready) break;
  }
  std::filesystem::rename(directory.Write("back.jpg", "an image"), image);
  EXPECT_EQ(made.get()->data().records(), 1);
  EXPECT_THAT(log.lines(), Contains(HasSubstr("can't read " + image)));
}

// Reads that fail so often.
class ReadPatientlyTest : public ::testing::Test {
 protected:
  // The number of reads.
  int Read(int failures, ExitCode code) {
    int reads = 0;
    const auto read = [&] {
      if (++reads <= failures) throw Error(code, "can't read images/cat.jpg");
    };
    const auto wait = [&](Duration pause) {
      waited_ += pause;
      return waited_ < wanted_;
    };
    try {
      ReadPatiently(read, wait);
      failed_ = false;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code);
      failed_ = true;
    }
    return reads;
  }

  Duration waited_{};
  Duration wanted_ = Duration::max();
  bool failed_ = false;
};

TEST_F(ReadPatientlyTest, AFailureThatPassesIsNone) {
  EXPECT_EQ(Read(3, ExitCode::kFailure), 4);
  EXPECT_FALSE(failed_);
  EXPECT_EQ(waited_, std::chrono::milliseconds(100 + 200 + 400));
}

TEST_F(ReadPatientlyTest, OneThatDoesNotIsTold) {
  Read(1000, ExitCode::kFailure);
  EXPECT_TRUE(failed_);
  EXPECT_EQ(waited_, kReadPatience);
}

TEST_F(ReadPatientlyTest, WrongDataAreNotReadAgain) {
  EXPECT_EQ(Read(1, ExitCode::kDataError), 1);
  EXPECT_TRUE(failed_);
}

TEST_F(ReadPatientlyTest, WhatNobodyWantsAnyMoreIsNotReadAgain) {
  wanted_ = Duration::zero();
  EXPECT_EQ(Read(1, ExitCode::kFailure), 1);
  EXPECT_TRUE(failed_);
}

}  // namespace
}  // namespace poseidon
