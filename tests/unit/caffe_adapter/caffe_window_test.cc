// WindowData layers: lists of windows, what is cut out of the images, and which windows come when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "caffe_adapter/data/data_order.h"
#include "caffe_adapter/data/window_list.h"
#include "caffe_adapter/files/caffemodel.h"
#include "core/random.h"
#include "tests/unit/caffe_adapter/sample_testing.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Floats = std::vector<float>;

constexpr int kHeight = 40;
constexpr int kWidth = 60;

// How many of a layer's first batches have which number of windows of the first kind.
std::vector<int64_t> FirstKinds(double share, int64_t batch, int64_t workers, int64_t batches) {
  OrderedRecords records{.records = 100};
  records.drawn = {30, std::lround(share * DrawnRecords::kMillion)};
  DataOrder order(records, workers, batch, false, 7);
  std::vector<int64_t> firsts(batches * workers);
  for (int64_t iteration = 0; iteration < batches; ++iteration) {
    for (int64_t rank = 0; rank < workers; ++rank) {
      for (int64_t i = 0; i < batch; ++i) {
        const int64_t record = order.Record(order.Position(iteration, rank, i));
        firsts[iteration * workers + rank] += record < 30 ? 1 : 0;
      }
    }
  }
  return firsts;
}

TEST(DrawnRecordsTest, EachBatchHasItsShareOfTheFirstKind) {
  EXPECT_THAT(FirstKinds(0.25, 128, 2, 3), ElementsAre(32, 32, 32, 32, 32, 32));
  EXPECT_THAT(FirstKinds(0.7, 10, 1, 4), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(FirstKinds(0.25, 6, 1, 4), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(FirstKinds(0, 5, 1, 2), ElementsAre(0, 0));
  EXPECT_THAT(FirstKinds(1, 5, 1, 2), ElementsAre(5, 5));
}

TEST(DrawnRecordsTest, WorkersDrawWhatOneWithTheirBatchesDrawsAndAllRecordsComeAlike) {
  OrderedRecords records{.records = 20};
  records.drawn = {5, DrawnRecords::kMillion / 2};
  DataOrder one(records, 1, 12, false, 3);
  DataOrder three(records, 3, 4, false, 3);
  DataOrder other_seed(records, 1, 12, false, 4);
  std::vector<int> draws(20);
  int alike = 0;
  constexpr int kIterations = 500;
  for (int64_t iteration = 0; iteration < kIterations; ++iteration) {
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t record = one.Record(one.Position(iteration, 0, i));
      EXPECT_EQ(three.Record(three.Position(iteration, i / 4, i % 4)), record);
      alike += other_seed.Record(other_seed.Position(iteration, 0, i)) == record ? 1 : 0;
      ++draws[record];
    }
  }
  // 3000 draws of each kind; six deviations of binomial numbers.
  for (int record = 0; record < 20; ++record) {
    const double mean = 3000.0 / (record < 5 ? 5 : 15);
    EXPECT_NEAR(draws[record], mean, 6 * std::sqrt(mean)) << record;
  }
  EXPECT_LT(alike, 12 * kIterations / 2);
  // At positions whose product with a million does not fit into 64 bits.
  const int64_t far = int64_t{1} << 50;
  EXPECT_GE(one.Record(far), 5);
  EXPECT_LT(one.Record(far + 1), 5);
}

class CaffeWindowTest : public ::testing::Test {
 protected:
  CaffeWindowTest() {
    Random random(11);
    for (const char* const name : {"a.png", "b.png"}) {
      cv::Mat image(kHeight, kWidth, CV_8UC3);
      for (int y = 0; y < kHeight; ++y) {
        for (int i = 0; i < 3 * kWidth; ++i) {
          image.ptr<uint8_t>(y)[i] = static_cast<uint8_t>(random.Below(256));
        }
      }
      cv::imwrite(directory_.Path(name), image);
    }
  }

  std::string List(const std::string& windows) const {
    const auto lines = std::count(windows.begin(), windows.end(), '\n');
    return directory_.Write("list.txt", "# 0\n" + directory_.Path("b.png") + "\n3 40 60\n0\n# 1\n" +
                                            directory_.Path("a.png") + "\n3 40 60\n" +
                                            std::to_string(lines) + "\n" + windows);
  }

  // Of windows that are all of the foreground, the one that is listed first is record 0.
  SourceUnderTest Source(const std::string& windows, const std::string& transform,
                         const std::string& fields = "") const {
    return {"WindowData", 2,
            "transform_param { " + transform + " } window_data_param { source: '" + List(windows) +
                "' batch_size: 4 fg_fraction: 1 " + fields + " }"};
  }

  cv::Mat Image() const { return cv::imread(directory_.Path("a.png")); }

  std::string ListError(const std::string& text) const {
    const std::string path = directory_.Write("bad.txt", text);
    const std::string error = MessageOf<DataError>([&] { ReadWindowList(path, 0.5F, 0.5F); });
    EXPECT_THAT(error, StartsWith(path + ":"));
    return error.empty() ? "" : error.substr(path.size() + 1);
  }

  TemporaryDirectory directory_;
};

// Channel, row, column.
Floats ToFloats(const cv::Mat& image, const Floats& means = {0, 0, 0}, float scale = 1) {
  Floats values;
  for (int channel = 0; channel < 3; ++channel) {
    for (int y = 0; y < image.rows; ++y) {
      for (int x = 0; x < image.cols; ++x) {
        values.push_back((static_cast<float>(image.at<cv::Vec3b>(y, x)[channel]) - means[channel]) *
                         scale);
      }
    }
  }
  return values;
}

std::string Line(int label, float overlap, const cv::Rect& box) {
  std::ostringstream line;
  line << label << ' ' << overlap << ' ' << box.x << ' ' << box.y << ' ' << box.x + box.width - 1
       << ' ' << box.y + box.height - 1 << '\n';
  return line.str();
}

TEST_F(CaffeWindowTest, ListsAreSortedByOverlap) {
  const WindowList list = ReadWindowList(
      List("3 0.7 1 2 3 4\n2 0.69 5 6 7 8\n9 0.3 0 0 1 1\n-1 0.2 2 2 2 2\n"), 0.7F, 0.3F);
  EXPECT_THAT(list.images, ElementsAre(directory_.Path("b.png"), directory_.Path("a.png")));
  ASSERT_EQ(list.foreground.size(), 1U);
  EXPECT_EQ(list.foreground[0].image, 1);
  EXPECT_EQ(list.foreground[0].label, 3);
  EXPECT_EQ(list.foreground[0].left, 1);
  EXPECT_EQ(list.foreground[0].top, 2);
  EXPECT_EQ(list.foreground[0].right, 3);
  EXPECT_EQ(list.foreground[0].bottom, 4);
  EXPECT_EQ(list.foreground[0].line, 9);
  ASSERT_EQ(list.background.size(), 1U);
  EXPECT_EQ(list.background[0].label, 0);
  EXPECT_EQ(list.background[0].line, 12);
}

TEST_F(CaffeWindowTest, BadListsAreNamedWithTheirLine) {
  const std::string head = "# 0\na.png\n3 40 60\n";
  EXPECT_THAT(ListError("\n \n"), HasSubstr("lists no images"));
  EXPECT_EQ(ListError("x 0\n"), "1: \"x\"; expected # and an image's number");
  EXPECT_EQ(ListError("# 0\na.png\n1 40 60\n"),
            "3: \"1\"; expected 3, for images are read in color");
  EXPECT_EQ(ListError(head), "4: the list ends; expected the number of windows");
  EXPECT_EQ(ListError(head + "-1\n"), "4: \"-1\"; expected the number of windows");
  EXPECT_THAT(ListError(head + "1\n2 0.5 1 1 1.5 3\n"),
              HasSubstr("5: \"1.5\"; expected a window: class, overlap, left, top, right and"));
  EXPECT_THAT(ListError(head + "1\n2 nan 1 1 2 3\n"), HasSubstr("5: \"nan\"; expected a window"));
  EXPECT_THAT(ListError(head + "1\n2 1 99999999 1 2 3\n"), HasSubstr("5: \"99999999\""));
  EXPECT_EQ(ListError(head + "2\n2 0.5 1 1 2 3\n1 1 4 4 3 4\n"),
            "6: the window has no pixel; expected left, top, right and bottom in this order");
  EXPECT_EQ(ListError(head + "1\n0 0.5 1 1 2 3\n"),
            "5: a window of the foreground has class 0; expected at least 1, for 0 is the "
            "background");
}

TEST_F(CaffeWindowTest, WindowsAreScaledMirroredAndNormalizedAsOpenCvDoes) {
  Random random(5);
  std::string lines;
  std::vector<cv::Rect> boxes;
  for (int i = 0; i < 12; ++i) {
    const int x = static_cast<int>(random.Below(kWidth));
    const int y = static_cast<int>(random.Below(kHeight));
    boxes.emplace_back(x, y, 1 + static_cast<int>(random.Below(kWidth - x)),
                       1 + static_cast<int>(random.Below(kHeight - y)));
    lines += Line(i + 1, 0.9F, boxes.back());
  }
  const SourceUnderTest source = Source(lines,
                                        "crop_size: 17 mirror: true mean_value: 10 mean_value: 20 "
                                        "mean_value: 30",
                                        "scale: 0.25");
  EXPECT_EQ(source.layer().tops[0].shape, (Shape{4, 3, 17, 17}));
  EXPECT_EQ(source.layer().tops[1].shape, (Shape{4}));
  int mirrored = 0;
  for (int record = 0; record < 12; ++record) {
    cv::Mat scaled;
    cv::resize(Image()(boxes[record]), scaled, {17, 17});
    cv::Mat flipped;
    cv::flip(scaled, flipped, 1);
    const Floats means = {10, 20, 30};
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<Floats> read = source.Read(record, seed);
      EXPECT_THAT(read[1], ElementsAre(record + 1));
      const bool mirror = read[0] != ToFloats(scaled, means, 0.25F);
      if (mirror) {
        EXPECT_EQ(read[0], ToFloats(flipped, means, 0.25F)) << record;
      }
      EXPECT_EQ(source.Read(record, seed), read);
      mirrored += mirror ? 1 : 0;
    }
  }
  EXPECT_GT(mirrored, 30);
  EXPECT_LT(mirrored, 66);
}

// What R-CNN says of context: the window fills crop_size less the context on both sides, what is
// beyond the image stays empty, and a square has the longer side of its window.
TEST_F(CaffeWindowTest, ContextIsAddedAroundWindowsAndStaysEmptyBeyondTheImage) {
  constexpr int kCrop = 24;
  for (const bool square : {false, true}) {
    for (const int pad : {0, 4, 8}) {
      if (!square && pad == 0) continue;
      // Inside of the image, at its corner, and over its right edge with all of the context.
      for (const cv::Rect& box :
           {cv::Rect(20, 12, 16, 8), cv::Rect(0, 0, 8, 16), cv::Rect(44, 24, 16, 16)}) {
        SCOPED_TRACE(testing::Message() << square << " " << pad << " " << box);
        const int side = std::max(box.width, box.height);
        const cv::Size window = square ? cv::Size(side, side) : box.size();
        const int inner = kCrop - 2 * pad;
        // One more on the right and below: Caffe's windows end on the pixel behind them.
        const int grown_width = static_cast<int>(std::lround(1.0 * window.width * kCrop / inner));
        const int grown_height = static_cast<int>(std::lround(1.0 * window.height * kCrop / inner));
        const cv::Rect grown(
            static_cast<int>(std::lround(box.x + box.width / 2.0 - grown_width / 2.0)),
            static_cast<int>(std::lround(box.y + box.height / 2.0 - grown_height / 2.0)),
            grown_width + 1, grown_height + 1);
        const cv::Rect seen = grown & cv::Rect(0, 0, kWidth, kHeight);
        const auto scale = [&](int extent, int whole) {
          return static_cast<int>(std::lround(1.0 * extent * kCrop / whole));
        };
        const cv::Point at(scale(seen.x - grown.x, grown.width),
                           scale(seen.y - grown.y, grown.height));
        const cv::Size size(std::min(scale(seen.width, grown.width), kCrop - at.x),
                            std::min(scale(seen.height, grown.height), kCrop - at.y));
        cv::Mat expected(kCrop, kCrop, CV_8UC3, cv::Scalar::all(0));
        cv::resize(Image()(seen), expected(cv::Rect(at, size)), size);

        const SourceUnderTest source =
            Source(Line(1, 1, box), "crop_size: 24",
                   "context_pad: " + std::to_string(pad) +
                       (square ? " crop_mode: 'square'" : " crop_mode: 'warp'"));
        EXPECT_EQ(source.Read(0)[0], ToFloats(expected));
      }
    }
  }
}

TEST_F(CaffeWindowTest, TheMeanImagesMiddleIsSubtracted) {
  caffe::BlobProto mean;
  for (const int extent : {1, 3, 8, 6}) mean.mutable_shape()->add_dim(extent);
  for (int i = 0; i < 3 * 8 * 6; ++i) mean.add_data(static_cast<float>(i));
  WriteBinaryFile(directory_.Path("mean"), mean);
  const std::string file = "mean_file: '" + directory_.Path("mean") + "' ";
  const cv::Rect box(3, 5, 4, 4);
  const Floats read = Source(Line(1, 1, box), file + "crop_size: 4").Read(0)[0];
  Floats expected = ToFloats(Image()(box));
  for (int i = 0; i < 3 * 4 * 4; ++i) {
    expected[i] -= static_cast<float>((i / 16 * 8 + 2 + i / 4 % 4) * 6 + 1 + i % 4);
  }
  EXPECT_EQ(read, expected);
  EXPECT_THAT(MessageOf<ConfigError>([&] { Source(Line(1, 1, box), file + "crop_size: 7"); }),
              HasSubstr("is 3 x 8 x 6; expected 3 channels and at least crop_size, 7"));
}

TEST_F(CaffeWindowTest, WindowsBeyondTheirImageAndMissingImagesAreNamed) {
  const std::string outside = Line(1, 1, {50, 10, 11, 5}) + Line(1, 1, {70, 10, 5, 5});
  const std::string message =
      ":10: the window lies outside of " + directory_.Path("a.png") + ", which is 3 x 40 x 60";
  const SourceUnderTest warped = Source(outside, "crop_size: 4");
  EXPECT_THAT(MessageOf<DataError>([&] { warped.Read(0); }), HasSubstr(":9: the window lies"));
  EXPECT_THAT(MessageOf<DataError>([&] { warped.Read(1); }), HasSubstr(message));
  // With context, a part of the window is enough.
  const SourceUnderTest square = Source(outside, "crop_size: 4", "crop_mode: 'square'");
  EXPECT_EQ(MessageOf<DataError>([&] { square.Read(0); }), "");
  EXPECT_THAT(MessageOf<DataError>([&] { square.Read(1); }), HasSubstr(message));
  EXPECT_EQ(square.source().Describe(1),
            "the window at " + directory_.Path("list.txt") + ":10 in " + directory_.Path("a.png"));
  const SourceUnderTest kept =
      Source(Line(1, 1, {1, 1, 5, 5}), "crop_size: 4", "cache_images: true root_folder: ''");
  const std::vector<Floats> before = kept.Read(0);
  std::filesystem::remove(directory_.Path("a.png"));
  EXPECT_EQ(kept.Read(0), before);
  EXPECT_THAT(MessageOf<DataError>([&] { warped.Read(0); }),
              HasSubstr(":9: can't read " + directory_.Path("a.png")));
}

TEST_F(CaffeWindowTest, LayersThatCannotBeReadSay) {
  const auto error = [&](const std::string& transform, const std::string& fields) {
    return MessageOf<Error>([&] { Source(Line(1, 0.5F, {1, 1, 5, 5}), transform, fields); });
  };
  EXPECT_EQ(error("crop_size: 4", ""), "");
  EXPECT_THAT(error("", ""), HasSubstr("transform_param.crop_size, the extent that windows are"));
  EXPECT_THAT(error("crop_size: 4", "crop_size: 4"), HasSubstr("belong into transform_param"));
  EXPECT_THAT(error("crop_size: 4 scale: 2", "scale: 2"), HasSubstr("not in both"));
  EXPECT_THAT(error("crop_size: 4 force_gray: true", ""), HasSubstr("images are read in color"));
  EXPECT_THAT(error("crop_size: 4", "context_pad: 2"),
              HasSubstr("context_pad is 2; expected less than half of crop_size, 4"));
  EXPECT_THAT(error("crop_size: 4", "crop_mode: 'round'"),
              HasSubstr("crop_mode is \"round\"; expected \"warp\" or \"square\""));
  EXPECT_THAT(error("crop_size: 4", "fg_threshold: 0.6"),
              HasSubstr("lists no window of the foreground"));
  EXPECT_THAT(MessageOf<Error>([&] {
                SourceUnderTest("WindowData", 2,
                                "transform_param { crop_size: 4 } window_data_param { source: '" +
                                    List(Line(1, 1, {1, 1, 5, 5})) + "' batch_size: 4 }");
              }),
              HasSubstr("lists no window of the background"));
  EXPECT_THAT(MessageOf<Error>([&] {
                SourceUnderTest("WindowData", 2,
                                "transform_param { crop_size: 4 } window_data_param { source: "
                                "'/no/such' batch_size: 4 fg_fraction: 1.5 }");
              }),
              HasSubstr("fg_fraction must be from 0 to 1"));
  EXPECT_THAT(MessageOf<DataError>([&] {
                SourceUnderTest("WindowData", 2,
                                "transform_param { crop_size: 4 } window_data_param { source: "
                                "'/no/such' batch_size: 4 }");
              }),
              HasSubstr("can't read /no/such"));
}

}  // namespace
}  // namespace poseidon
