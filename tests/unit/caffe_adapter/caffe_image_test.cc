// Image files, lists of them, encoded records, and `poseidon convert imageset` and `mean`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "caffe_adapter/convert/convert.h"
#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/data/dataset.h"
#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/data/image_list.h"
#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/file.h"
#include "tests/unit/caffe_adapter/sample_testing.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ByteImage RandomImage(int64_t channels, int64_t height, int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  ByteImage image{{channels, height, width}, {}};
  for (int64_t i = 0; i < Count(image.shape); ++i) image.bytes += static_cast<char>(random());
  return image;
}

class CaffeImageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasImageFiles()) GTEST_SKIP() << "this build has no OpenCV";
  }

  std::string WriteImage(const std::string& name, const ByteImage& image) const {
    return directory_.Write(name, EncodeImage(image, name.substr(name.rfind('.') + 1)));
  }

  ImagesetOptions Options() const {
    ImagesetOptions options;
    options.source = directory_.Path("list.txt");
    options.root_folder = directory_.path() + "/";
    options.out = directory_.Path("db");
    options.replace = true;
    return options;
  }

  std::string ConvertError(const ImagesetOptions& options) const {
    return MessageOf<DataError>([&] { ConvertImageset(options); });
  }

  TemporaryDirectory directory_;
};

TEST_F(CaffeImageTest, WhatIsEncodedIsDecoded) {
  for (const int64_t channels : {1, 3, 4}) {
    const ByteImage image = RandomImage(channels, 5, 7, 1);
    const ByteImage read = DecodeImage(EncodeImage(image, "png"), ImageChannels::kAsStored, "it");
    EXPECT_EQ(read.shape, image.shape);
    EXPECT_EQ(read.bytes, image.bytes);
  }
}

TEST_F(CaffeImageTest, ColorsAreBlueGreenRed) {
  // A PNG of one red pixel would be a long constant; a PPM says red, green, blue in order.
  const std::string ppm = std::string("P6 1 1 255\n") + "\xff\x80\x01";
  EXPECT_EQ(DecodeImage(ppm, ImageChannels::kColor, "it").bytes, "\x01\x80\xff");
  // Rec. 601's weights of red, green and blue.
  const auto gray = static_cast<uint8_t>(DecodeImage(ppm, ImageChannels::kGray, "it").bytes[0]);
  EXPECT_NEAR(gray, 0.299 * 255 + 0.587 * 128 + 0.114, 1);
}

TEST_F(CaffeImageTest, ResizingIsBilinearWithCentersAtHalves) {
  const std::string path = WriteImage("x.png", {{1, 1, 2}, std::string("\x00\x64", 2)});
  EXPECT_EQ(ReadImageFile(path, ImageChannels::kGray, 1, 4).bytes,
            std::string("\0\x19\x4b\x64", 4));
}

TEST_F(CaffeImageTest, BadImages) {
  const ByteImage image = RandomImage(3, 40, 40, 2);
  for (const std::string type : {"png", "jpg"}) {
    const std::string file = EncodeImage(image, type);
    for (const double share : {0.98, 0.5, 0.1, 0.01, 0.0}) {
      const auto length = static_cast<size_t>(share * static_cast<double>(file.size()));
      EXPECT_THAT(MessageOf<DataError>(
                      [&] { DecodeImage(file.substr(0, length), ImageChannels::kColor, "dir/x"); }),
                  HasSubstr("dir/x: "))
          << type << " " << share;
    }
  }
  EXPECT_EQ(MessageOf<DataError>([] { DecodeImage("hello", ImageChannels::kColor, "x"); }),
            "x: is no image that OpenCV can read, or a corrupt one");
  EXPECT_THAT(
      MessageOf<DataError>([] { ReadImageFile("no/such.jpg", ImageChannels::kColor, 0, 0); }),
      HasSubstr("can't read no/such.jpg: No such file"));
  EXPECT_THAT(MessageOf<DataError>([&] { EncodeImage(image, "gift"); }),
              HasSubstr("can't encode an image as \"gift\""));
}

// Telephones write a film behind the picture, whose bytes may be anything.
TEST_F(CaffeImageTest, WhatStandsBehindAJpegIsNotLookedAt) {
  const std::string file = EncodeImage(RandomImage(3, 40, 40, 2), "jpg");
  const ByteImage image = DecodeImage(file, ImageChannels::kColor, "x");
  for (const std::string& behind : {std::string("\xff\xda film"), std::string(1, '\xff'), file}) {
    EXPECT_EQ(DecodeImage(file + behind, ImageChannels::kColor, "x").bytes, image.bytes);
  }
}

// A camera's small picture is in a segment of the large one, with an end of its own.
TEST_F(CaffeImageTest, AJpegIsTruncatedThoughTheSmallOneInItIsWhole) {
  const std::string file = EncodeImage(RandomImage(3, 40, 40, 2), "jpg");
  const std::string small = EncodeImage(RandomImage(3, 4, 4, 2), "jpg");
  const size_t length = small.size() + 2;
  const std::string segment = std::string("\xff\xe1") + static_cast<char>(length >> 8U) +
                              static_cast<char>(length & 0xffU) + small;
  const std::string both = file.substr(0, 2) + segment + file.substr(2);
  EXPECT_EQ(DecodeImage(both, ImageChannels::kColor, "x").bytes,
            DecodeImage(file, ImageChannels::kColor, "x").bytes);
  const size_t scan = both.rfind("\xff\xda");
  for (const size_t cut : {scan, scan + 5, both.size() - 100, both.size() - 1}) {
    EXPECT_EQ(
        MessageOf<DataError>([&] { DecodeImage(both.substr(0, cut), ImageChannels::kColor, "x"); }),
        "x: the image is truncated; copy or make it anew")
        << cut;
  }
}

TEST_F(CaffeImageTest, Lists) {
  const std::string list = directory_.Write("l", "a b.jpg 3\r\n\nc.png\t-1  \n");
  const std::vector<ListedImage> images = ReadImageList(list);
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0].path, "a b.jpg");
  EXPECT_EQ(images[0].label, 3);
  EXPECT_EQ(images[1].path, "c.png");
  EXPECT_EQ(images[1].label, -1);
  EXPECT_EQ(images[1].line, 3);
  const auto error = [&](const std::string& text) {
    return MessageOf<DataError>([&] { ReadImageList(directory_.Write("l", text)); });
  };
  for (const std::string bad : {"x.jpg 1.5", "x.jpg", "x.jpg one", "x.jpg 99999999999"}) {
    EXPECT_EQ(error("y.jpg 0\n" + bad),
              list + ":2: \"" + bad +
                  "\"; expected the path of an image, a blank and its label, a whole number");
  }
  EXPECT_EQ(error("\n"), list + ": lists no images");
}

TEST_F(CaffeImageTest, ImageDataReadsCropsAndResizes) {
  const ByteImage first = RandomImage(3, 6, 5, 1);
  const ByteImage second = RandomImage(3, 6, 5, 2);
  WriteImage("a/x.png", first);
  WriteImage("a/y.png", second);
  directory_.Write("list.txt", "x.png 4\ny.png 9\n");
  const std::string fields = "image_data_param { source: '" + directory_.Path("list.txt") +
                             "' root_folder: '" + directory_.Path("a/") + "' batch_size: 2 ";
  const SourceUnderTest plain("ImageData", 2, fields + "}");
  EXPECT_EQ(plain.layer().tops[0].shape, (Shape{2, 3, 6, 5}));
  EXPECT_EQ(plain.layer().tops[1].shape, (Shape{2}));
  const auto read = plain.Read(1);
  for (size_t i = 0; i < second.bytes.size(); ++i) {
    ASSERT_EQ(read[0][i], static_cast<uint8_t>(second.bytes[i]));
  }
  EXPECT_THAT(read[1], ElementsAre(9));
  EXPECT_EQ(plain.source().Describe(1), "y.png (" + directory_.Path("list.txt") + ":2)");

  const SourceUnderTest gray("ImageData", 2,
                             fields +
                                 "is_color: false new_height: 8 new_width: 9 }"
                                 "transform_param { crop_size: 4 scale: 0.5 }");
  EXPECT_EQ(gray.layer().tops[0].shape, (Shape{2, 1, 4, 4}));
  const ByteImage resized = ReadImageFile(directory_.Path("a/x.png"), ImageChannels::kGray, 8, 9);
  const SourceUnderTest test("ImageData", 2,
                             fields +
                                 "is_color: false new_height: 8 new_width: 9 }"
                                 "transform_param { crop_size: 4 scale: 0.5 }",
                             caffe::TEST);
  EXPECT_EQ(test.Read(0)[0][0], 0.5F * static_cast<uint8_t>(resized.bytes[2 * 9 + 2]));
}

TEST_F(CaffeImageTest, ImagesOfOtherSizesOrNoneAtAllAreNamedWithTheirLine) {
  WriteImage("x.png", RandomImage(3, 6, 5, 1));
  WriteImage("y.png", RandomImage(3, 7, 5, 1));
  const std::string list = directory_.Write("list.txt", "x.png 4\ny.png 9\nz.png 1\n");
  const SourceUnderTest source(
      "ImageData", 2,
      "image_data_param { source: '" + list + "' root_folder: '" + directory_.path() + "/' }");
  EXPECT_EQ(MessageOf<DataError>([&] { source.Read(1); }),
            list + ":2: " + directory_.Path("y.png") +
                " is 3 x 7 x 5, but the first record 3 x 6 x 5; set new_height and new_width to "
                "make all images alike");
  EXPECT_EQ(MessageOf<DataError>([&] { source.Read(2); }),
            list + ":3: can't read " + directory_.Path("z.png") + ": No such file or directory");
}

TEST_F(CaffeImageTest, EncodedRecordsAreDecodedAndForced) {
  const ByteImage color = RandomImage(3, 6, 5, 1);
  const ByteImage gray = RandomImage(1, 9, 5, 2);
  DatasetWriter writer(directory_.Path("db"));
  for (const ByteImage& image : {color, gray}) {
    caffe::Datum datum;
    datum.set_encoded(true);
    datum.set_data(EncodeImage(image, "png"));
    datum.set_label(3);
    writer.Append(datum);
  }
  writer.Finish();
  const std::string data = "data_param { source: '" + directory_.Path("db") +
                           "' backend: LMDB batch_size: 1 } transform_param { ";
  const SourceUnderTest plain("Data", 2, data + "}");
  EXPECT_EQ(plain.layer().tops[0].shape, (Shape{1, 3, 6, 5}));
  EXPECT_EQ(plain.Read(0)[0][7], static_cast<uint8_t>(color.bytes[7]));
  EXPECT_THAT(MessageOf<DataError>([&] { plain.Read(1); }),
              HasSubstr("record 1 (key \"00000001\"): is 1 x 9 x 5, but the first record"));
  const SourceUnderTest forced("Data", 2, data + "force_gray: true crop_size: 5 }");
  EXPECT_EQ(forced.layer().tops[0].shape, (Shape{1, 1, 5, 5}));
  forced.Read(0);
  forced.Read(1);
}

TEST_F(CaffeImageTest, ConvertImagesetStoresPixels) {
  std::vector<ByteImage> images;
  std::string list;
  for (int i = 0; i < 12; ++i) {
    images.push_back(RandomImage(3, 4, 6, static_cast<unsigned>(i)));
    const std::string name = "class " + std::to_string(i % 3) + "/" + std::to_string(i) + ".png";
    WriteImage(name, images.back());
    list += name + " " + std::to_string(i) + "\n";
  }
  directory_.Write("list.txt", list);
  const ConvertResult result = ConvertImageset(Options());
  EXPECT_EQ(result.databases[0].records, 12);
  EXPECT_THAT(result.databases[0].record_shape, ElementsAre(3, 4, 6));
  const Dataset dataset(directory_.Path("db"));
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(dataset.Read(i).label(), i);
    EXPECT_EQ(dataset.Read(i).data(), images[i].bytes);
  }
  EXPECT_THAT(dataset.Describe(7), HasSubstr("(key \"00000007_class 1/7.png\")"));

  ImagesetOptions options = Options();
  options.shuffle = true;
  ConvertImageset(options);
  std::vector<int> labels;
  for (int i = 0; i < 12; ++i) labels.push_back(Dataset(directory_.Path("db")).Read(i).label());
  EXPECT_FALSE(std::is_sorted(labels.begin(), labels.end()));
  std::sort(labels.begin(), labels.end());
  EXPECT_THAT(labels, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST_F(CaffeImageTest, ConvertImagesetStoresFilesAsTheyAreWhereNothingChanges) {
  const ByteImage image = RandomImage(3, 8, 8, 4);
  WriteImage("x.jpg", image);
  directory_.Write("list.txt", "x.jpg 4\n");
  ImagesetOptions options = Options();
  options.encoded = true;
  ConvertImageset(options);
  EXPECT_EQ(Dataset(directory_.Path("db")).Read(0).data(), ReadFile(directory_.Path("x.jpg")));

  options.encode_type = "png";
  ConvertImageset(options);
  const Dataset png(directory_.Path("db"));
  EXPECT_THAT(png.Read(0).data(), HasSubstr("PNG"));
  const ByteImage read = ReadImageFile(directory_.Path("x.jpg"), ImageChannels::kColor, 0, 0);
  EXPECT_EQ(png.ReadDecoded(0).data(), read.bytes);

  options.encode_type = "";
  options.gray = true;  // the file is colored
  options.resize_height = options.resize_width = 4;
  ConvertImageset(options);
  EXPECT_THAT(Dataset(directory_.Path("db")).record_shape(), ElementsAre(1, 4, 4));
}

TEST_F(CaffeImageTest, ConvertImagesetErrors) {
  WriteImage("x.png", RandomImage(3, 8, 8, 4));
  WriteImage("y.png", RandomImage(3, 8, 9, 4));
  const std::string list = directory_.Write("list.txt", "x.png 4\ny.png 0\nz.png 1\n");
  ImagesetOptions options = Options();
  EXPECT_EQ(ConvertError(options),
            list + ":3: can't read " + directory_.Path("z.png") + ": No such file or directory");
  EXPECT_FALSE(std::filesystem::exists(options.out));
  options.check_size = true;
  EXPECT_THAT(ConvertError(options),
              HasSubstr(list + ":2: y.png is 3 x 8 x 9, but the first image 3 x 8 x 8"));
  options.resize_height = 4;
  EXPECT_EQ(MessageOf<ConfigError>([&] { ConvertImageset(options); }),
            "give both resize_height and resize_width, or neither");
}

TEST_F(CaffeImageTest, ConvertImagesetSaysThatSizesDiffer) {
  WriteImage("x.png", RandomImage(3, 8, 8, 4));
  WriteImage("y.png", RandomImage(3, 8, 9, 4));
  const std::string list = directory_.Write("list.txt", "x.png 4\ny.png 0\nx.png 1\n");
  ImagesetOptions options = Options();
  EXPECT_THAT(
      ConvertImageset(options).warnings,
      ElementsAre(list + ": 1 image is not of the first one's size, 3 x 8 x 8; y.png (line 2) is "
                         "3 x 8 x 9. A net reads them if it crops (crop_size); for one that does "
                         "not, convert again with --resize_height and --resize_width"));
  options.resize_height = options.resize_width = 4;
  EXPECT_THAT(ConvertImageset(options).warnings, ElementsAre());
}

TEST_F(CaffeImageTest, MeanOfEncodedAndPlainRecords) {
  std::vector<double> sums(3 * 2 * 2);
  DatasetWriter writer(directory_.Path("db"));
  for (unsigned i = 0; i < 10; ++i) {
    const ByteImage image = RandomImage(3, 2, 2, i);
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += static_cast<uint8_t>(image.bytes[j]);
    caffe::Datum datum;
    datum.set_channels(3);
    datum.set_height(2);
    datum.set_width(2);
    datum.set_data(i % 2 == 0 ? image.bytes : EncodeImage(image, "png"));
    datum.set_encoded(i % 2 == 1);
    writer.Append(datum);
  }
  writer.Finish();
  int64_t told = 0;
  const ConvertResult result = ComputeMean(directory_.Path("db"), directory_.Path("mean"),
                                           [&told](int64_t done, int64_t all) {
                                             EXPECT_EQ(done, ++told);
                                             EXPECT_EQ(all, 10);
                                           });
  EXPECT_EQ(told, 10);
  caffe::BlobProto mean;
  ReadBinaryFile(directory_.Path("mean"), mean);
  EXPECT_THAT(BlobProtoShape(mean), ElementsAre(1, 3, 2, 2));
  double channel = 0;
  for (int j = 0; j < 12; ++j) EXPECT_FLOAT_EQ(mean.data(j), static_cast<float>(sums[j] / 10));
  for (int j = 4; j < 8; ++j) channel += sums[j] / 40;
  EXPECT_NEAR(result.channel_means[1], channel, 1e-9);
}

}  // namespace
}  // namespace poseidon
