// Images in a CSV file.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "caffe_adapter/convert/convert.h"
#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/convert/extents.h"
#include "caffe_adapter/convert/image.h"
#include "caffe_adapter/convert/record_count.h"
#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/random.h"
#include "core/text/utf8.h"
#include "proto/job_fields.h"

namespace poseidon {
namespace {

// One image a line.
struct Row {
  int label = 0;
  std::vector<double> pixels;
};

class CsvReader {
 public:
  explicit CsvReader(const CsvOptions& options) : options_(options) {
    CheckRegularFile(options.source, ExitCode::kDataError);
    stream_.open(options.source);
    if (!stream_) throw DataError("can't read " + options.source + ": " + std::strerror(errno));
  }

  // False at the end of the file.
  bool Next(Row& row) {
    std::string text;
    do {
      if (!std::getline(stream_, text)) {
        if (stream_.bad()) throw DataError("can't read " + options_.source);
        return false;
      }
      if (++line_ == 1) text = WithoutByteOrderMark(text);
    } while (IsBlank(text) || (line_ == 1 && std::isalpha(static_cast<uint8_t>(text[0]))));
    Parse(text, row);
    return true;
  }

  [[noreturn]] void Fail(const std::string& message) const {
    throw DataError(options_.source + ":" + std::to_string(line_) + ": " + message);
  }

 private:
  static bool IsBlank(const std::string& text) {
    return text.find_first_not_of(" \t\r") == std::string::npos;
  }

  void Parse(std::string_view text, Row& row) {
    std::vector<double> values;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      values.push_back(ParseNumber(text.substr(begin, end - begin), values.size()));
      begin = end + 1;
    }
    if (columns_ == 0) columns_ = values.size();
    if (values.size() != columns_) {
      Fail("has " + std::to_string(values.size()) + " columns; the lines before have " +
           std::to_string(columns_));
    }
    TakeLabel(values, row);
    row.pixels = std::move(values);
  }

  double ParseNumber(std::string_view text, size_t column) const {
    while (!text.empty() && std::isspace(static_cast<uint8_t>(text.front()))) text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<uint8_t>(text.back()))) text.remove_suffix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
      Fail("column " + std::to_string(column) + " is \"" + std::string(text) + "\", no number");
    }
    return value;
  }

  void TakeLabel(std::vector<double>& values, Row& row) const {
    const auto columns = static_cast<int>(values.size());
    const int column =
        options_.label_column < 0 ? options_.label_column + columns : options_.label_column;
    if (column < 0 || column >= columns) {
      Fail("has no column " + std::to_string(options_.label_column) + " for the label, only " +
           std::to_string(columns) + " columns");
    }
    const double label = values[column];
    if (label < 0 || label != std::floor(label) || label > std::numeric_limits<int>::max()) {
      Fail("the label in column " + std::to_string(column) + " is " + std::to_string(label) +
           "; expected a whole number from 0");
    }
    row.label = static_cast<int>(label);
    values.erase(values.begin() + column);
  }

  const CsvOptions& options_;
  std::ifstream stream_;
  int64_t line_ = 0;
  size_t columns_ = 0;
};

void CheckOptions(const CsvOptions& options) {
  if (!(options.max_value > 0 && std::isfinite(options.max_value))) {
    throw ConfigError("max_value is " + NumberText(options.max_value) +
                      "; it must be above 0, the pixel value that becomes 255");
  }
  CheckExtents("height", options.height, "width", options.width);
  CheckExtents("scale_height", options.scale_height, "scale_width", options.scale_width);
  if (options.train_records < 0) {
    throw ConfigError("train_records is " + std::to_string(options.train_records) +
                      "; it must not be negative");
  }
}

Image ToImage(const CsvOptions& options, const CsvReader& reader, const Row& row) {
  Image image{options.height, options.width, {row.pixels.begin(), row.pixels.end()}};
  const auto count = static_cast<int64_t>(row.pixels.size());
  if (options.height == 0) {
    image.height = image.width = std::llround(std::sqrt(static_cast<double>(count)));
  }
  if (image.height * image.width != count || count == 0) {
    reader.Fail("has " + std::to_string(count) + " pixels beside the label; expected " +
                (options.height == 0 ? std::string("a square number")
                                     : std::to_string(image.height * image.width)));
  }
  for (const float pixel : image.pixels) {
    if (pixel < 0 || pixel > options.max_value) {
      reader.Fail("a pixel is " + std::to_string(pixel) + "; expected 0 to " +
                  std::to_string(options.max_value));
    }
  }
  return image;
}

// As large as in the file: scaled they may need more memory than there is.
struct LabeledImage {
  int label = 0;
  Image image;
};

std::vector<LabeledImage> ReadRecords(const CsvOptions& options) {
  CsvReader reader(options);
  std::vector<LabeledImage> records;
  Row row;
  while (reader.Next(row)) {
    records.push_back({row.label, ToImage(options, reader, row)});
  }
  if (records.empty()) throw DataError(options.source + ": has no images");
  return records;
}

caffe::Datum ToDatum(const CsvOptions& options, const LabeledImage& record) {
  const Image image = options.scale_height == 0
                          ? record.image
                          : ScaleBilinear(record.image, options.scale_height, options.scale_width);
  caffe::Datum datum;
  datum.set_channels(1);
  datum.set_height(static_cast<int>(image.height));
  datum.set_width(static_cast<int>(image.width));
  datum.set_label(record.label);
  datum.set_data(ToBytes(image, 255 / options.max_value));
  return datum;
}

// On disk; it has no name yet.
WrittenDatabase WriteSet(const CsvOptions& options, std::span<const LabeledImage> records,
                         const std::string& path, DatasetWriter& writer, RecordCount& count) {
  Shape shape;
  for (const LabeledImage& record : records) {
    const caffe::Datum datum = ToDatum(options, record);
    shape = {1, datum.height(), datum.width()};
    writer.Append(datum);
    count.Next();
  }
  writer.Sync();
  return {path, writer.size(), shape};
}

// Both databases are begun before the first is filled, and on disk before it has its name: a
// conversion that has failed can be repeated.
std::vector<WrittenDatabase> WriteSets(const CsvOptions& options,
                                       std::span<const LabeledImage> train,
                                       std::span<const LabeledImage> test) {
  const auto existing =
      options.replace ? DatasetWriter::Existing::kReplace : DatasetWriter::Existing::kRefuse;
  const std::string train_path = options.out + "/train_lmdb";
  const std::string test_path = options.out + "/test_lmdb";
  DatasetWriter train_writer(train_path, existing);
  DatasetWriter test_writer(test_path, existing);
  RecordCount count(options.progress, std::ssize(train) + std::ssize(test));
  std::vector<WrittenDatabase> written = {
      WriteSet(options, train, train_path, train_writer, count)};
  if (test.empty()) {
    test_writer.Remove();  // what an old one tests on may be trained on now
    train_writer.Finish();
    return written;
  }
  written.push_back(WriteSet(options, test, test_path, test_writer, count));
  train_writer.Finish();
  test_writer.Finish();
  return written;
}

}  // namespace

ConvertResult ConvertCsv(const CsvOptions& options) {
  CheckOptions(options);
  std::vector<LabeledImage> records = ReadRecords(options);
  const size_t train =
      options.train_records == 0 ? records.size() : static_cast<size_t>(options.train_records);
  if (records.size() < train) {
    throw DataError(options.source + ": has " + std::to_string(records.size()) +
                    " images, fewer than the " + std::to_string(train) + " to train");
  }
  if (options.shuffle) Shuffle(records, options.shuffle_seed);
  const std::span<const LabeledImage> all(records);
  ConvertResult result;
  result.databases = WriteSets(options, all.first(train), all.subspan(train));
  return result;
}

}  // namespace poseidon
